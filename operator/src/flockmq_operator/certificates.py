"""The authorities and the certificates of a cluster's links and of its Redis: what to renew next. Pure, but for the
entropy of fresh keys.

Nodes of a role show one certificate, which says the role, and believe only what the links' own authority signed. Redis
and its Sentinels show another one, of an authority that no link believes. All of a family stands in one Secret, so that
no change is half a change; a pod is given only the files that it needs:

    ca.crt                        who is believed: the authority, and for a while the one before it
    ca.key                        the newest authority's key; it is mounted in no pod
    core.crt, core.key            links: what cores show
    replicant.crt, replicant.key  links: what replicants show
    tls.crt, tls.key              links: what pods of an earlier operator show, until there are none: it says no role
    redis.crt, redis.key          Redis: what its pods show

All read their files again when they change, and connections that are up stay, so no node and no Redis is restarted. An
authority is replaced in three steps, OVERLAP apart, so that everybody has read one before the next: a second one is
believed; it signs what is shown; the first one is believed no longer. So it is, too, when the last pod has gone that
showed a certificate without a role: what the new one signs says a role.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_LIFE = timedelta(days=3 * 365)
CERTIFICATE_LIFE = timedelta(days=90)
RENEW_AFTER = 2 / 3
"""The share of its life after which either is replaced."""
OVERLAP = timedelta(hours=24)
"""How long everybody has to read the files again; the kubelet takes a minute or two to bring them."""
BACKDATED = timedelta(hours=1)
"""How far a node's clock may be behind the operator's."""

REDIS_PODS_MAX = 5
ROLES = ("core", "replicant")
WITHOUT_ROLE = "tls"
ROLE_URI = "urn:flockmq:role:"
"""What a certificate says its node's role by; brokers look for it (`membership/link_certificates.py` of theirs)."""

Files = Mapping[str, bytes]


class Unreadable(Exception):
    """The files aren't what this module wrote; the message says which, and why."""


class Step(NamedTuple):
    files: dict[str, bytes]
    """The whole Secret, as it should be now."""
    sentence: str
    """What happened, for an event."""


class Family(NamedTuple):
    """Certificates that one authority signs."""

    cluster: str
    of: str
    """For sentences."""
    names: tuple[str, ...]
    """Of their files."""
    hosts: tuple[str, ...]
    """Which each of them is valid for."""


def of_links(cluster: str) -> Family:
    return Family(cluster, "links", ROLES, (f"{cluster}-core",))


def of_redis(cluster: str) -> Family:
    """Valid for every pod that there may ever be, so that another number of them needs no other certificate."""
    service = f"{cluster}-redis"
    pods = [f"{service}-{number}" for number in range(REDIS_PODS_MAX)]
    return Family(cluster, "Redis", ("redis",), (service, *pods, "localhost"))


class Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class Shown(NamedTuple):
    certificate: x509.Certificate
    key: bytes
    """PEM."""


class Held(NamedTuple):
    newest: Authority
    before: x509.Certificate | None
    """The authority before the newest, while it is still believed."""
    shown: dict[str, Shown]
    """By the name of their files: the family's, and WITHOUT_ROLE."""

    @property
    def moved(self) -> bool:
        """Whether the newest authority signed what is shown."""
        try:
            self.oldest.verify_directly_issued_by(self.newest.certificate)
        except (InvalidSignature, ValueError):
            return False
        return True

    @property
    def oldest(self) -> x509.Certificate:
        """Of what is shown."""
        return min((shown.certificate for shown in self.shown.values()), key=made_at)


def next_step(files: Files | None, family: Family, now: datetime, *, without_role: bool = False) -> Step | None:
    """What the family's files should become; None: they are as they should be. `files` None: there are none;
    `without_role`: pods still show the certificate that says no role.

    Raises Unreadable.
    """
    if files is None:
        return renewed(family, now, None, f"Made an authority and certificates for {family.of}")
    held = read(files, family)
    authority, oldest = held.newest.certificate, held.oldest
    if not held.shown.keys() >= set(family.names):
        return shown_anew(family, now, held, f"Made certificates for {family.of} that say a node's role")
    if not held.moved:
        if now >= min(made_at(authority) + OVERLAP, oldest.not_valid_after_utc):
            return shown_anew(family, now, held, f"The certificates of {family.of} are now of the new authority")
        return None
    if held.before is not None and now >= made_at(oldest) + OVERLAP:
        return Step(written(held.newest, None, held.shown), f"The old authority of {family.of} is believed no longer")
    if held.before is None and due(authority, now):
        return renewed(family, now, held, f"Made a new authority for {family.of}; the old one is still believed")
    if held.before is None and WITHOUT_ROLE in held.shown and not without_role:
        sentence = f"Made a new authority for {family.of}: its certificates all say a role"
        made = renewed(family, now, held._replace(shown=with_roles(held)), sentence)
        return made._replace(files=made.files | EMPTIED)
    if due(oldest, now):
        return shown_anew(family, now, held, f"Renewed the certificates of {family.of}")
    return None


EMPTIED = {f"{WITHOUT_ROLE}.crt": b"", f"{WITHOUT_ROLE}.key": b""}
"""A key that was made with its Secret isn't removed by not applying it."""


def with_roles(held: Held) -> dict[str, Shown]:
    return {name: shown for name, shown in held.shown.items() if name != WITHOUT_ROLE}


def due(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - made_at(certificate)
    return now >= made_at(certificate) + life * RENEW_AFTER


def made_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED


def renewed(family: Family, now: datetime, held: Held | None, sentence: str) -> Step:
    """With a new authority. The old one, while it may be believed alone, signs once more: its key is then gone."""
    newest = authority_for(family, now)
    old = held.newest if held and now + 2 * OVERLAP < held.newest.certificate.not_valid_after_utc else None
    shown = signed(family, now, old or newest, held)
    return Step(written(newest, old.certificate if old else None, shown), sentence)


def shown_anew(family: Family, now: datetime, held: Held, sentence: str) -> Step:
    return Step(written(held.newest, held.before, signed(family, now, held.newest, held)), sentence)


def signed(family: Family, now: datetime, authority: Authority, held: Held | None) -> dict[str, Shown]:
    """Each of the family's certificates, and the one that says no role where there still is one."""
    names = dict.fromkeys((*family.names, *(held.shown if held else ())))
    return {name: certificate_for(family, now, authority, name) for name in names}


# --- certificates -----------------------------------------------------------------------------------------------------


def authority_for(family: Family, now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name(f"{family.cluster} {family.of} {now:%Y-%m-%d}")
    usage = key_usage(key_cert_sign=True, crl_sign=True)
    builder = builder_for(name, name, key.public_key(), now, AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Authority(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)


def certificate_for(family: Family, now: datetime, authority: Authority, name: str) -> Shown:
    """It never outlives the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    life = min(CERTIFICATE_LIFE, issuer.not_valid_after_utc - now)
    both_sides = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    believed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    roles = [x509.UniformResourceIdentifier(f"{ROLE_URI}{name}")] if name in ROLES else []
    hosts = map(x509.DNSName, family.hosts)
    subject = common_name(f"{family.cluster} {name if name in family.names else 'node'}")
    builder = builder_for(subject, issuer.subject, key.public_key(), now, life)
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (key_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage(both_sides), False),
        (x509.SubjectAlternativeName([*hosts, *roles]), False),
        (believed_by, False),
    ):
        builder = builder.add_extension(extension, critical)
    return Shown(builder.sign(authority.key, hashes.SHA256()), pem_of(key))


def builder_for(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


# --- files ------------------------------------------------------------------------------------------------------------


def written(newest: Authority, before: x509.Certificate | None, shown: Mapping[str, Shown]) -> dict[str, bytes]:
    believed = [newest.certificate, before] if before else [newest.certificate]
    files = {
        "ca.crt": b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in believed),
        "ca.key": pem_of(newest.key),
    }
    for name, (certificate, key) in shown.items():
        files[f"{name}.crt"] = certificate.public_bytes(serialization.Encoding.PEM)
        files[f"{name}.key"] = key
    return files


def read(files: Files, family: Family) -> Held:
    """Raises Unreadable."""
    name = ""
    shown: dict[str, Shown] = {}
    there = [WITHOUT_ROLE] if files.get(f"{WITHOUT_ROLE}.crt") else []
    there += [name for name in family.names if not there or f"{name}.crt" in files]
    try:
        name = "ca.crt"
        newest, *before = x509.load_pem_x509_certificates(files[name])
        for stem in there:
            name = f"{stem}.crt"
            certificate = x509.load_pem_x509_certificate(files[name])
            name = f"{stem}.key"
            shown_key = serialization.load_pem_private_key(files[name], None)
            if shown_key.public_key() != certificate.public_key():
                raise Unreadable(f"{name} isn't the key of the certificate in {stem}.crt")
            shown[stem] = Shown(certificate, files[name])
        name = "ca.key"
        key = serialization.load_pem_private_key(files[name], None)
    except KeyError:
        raise Unreadable(f"{name} is missing") from None
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{name} isn't PEM as the operator wrote it: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != newest.public_key():
        raise Unreadable("ca.key isn't the key of the first certificate in ca.crt")
    return Held(Authority(newest, key), before[0] if before else None, shown)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
