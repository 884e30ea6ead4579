"""SCRAM-SHA-256 against the exchange of RFC 7677 and against what a client may get wrong."""

import base64
import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.auth.scram import ClientFirst, ScramError, ScramServer, Verifier, saslprep
from unit.broker.auth.harness import proved

# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(verifier: Verifier | None = None, first: bytes = FIRST) -> ScramServer:
    return ScramServer(ClientFirst.parse(first), verifier or Verifier.made("pencil", 4096, SALT), NONCE)


def test_the_exchange_of_the_rfc() -> None:
    exchange = server()
    assert exchange.challenge == CHALLENGE
    assert exchange.finish(FINAL) == SIGNATURE


def test_a_verifier_is_stored_and_read_again() -> None:
    verifier = Verifier.made("pencil", 4096, SALT)
    assert str(verifier).startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert Verifier.parse(str(verifier)) == verifier
    with pytest.raises(ValueError, match="isn't SCRAM"):
        Verifier.parse("SCRAM-SHA-1$1:a$b:c")
    with pytest.raises(ValueError, match="32 bytes"):
        Verifier.parse("SCRAM-SHA-256$4096:c2FsdA==$c2FsdA==:c2FsdA==")


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20))
def test_any_password_lets_in_who_knows_it_and_nobody_else(password: str) -> None:
    verifier = Verifier.made(password, 1)
    exchange = server(verifier)
    exchange.finish(proved(password, FIRST, exchange.challenge))
    with pytest.raises(ScramError, match="the proof is wrong"):
        exchange.finish(proved(password + "x", FIRST, exchange.challenge))


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"\xff",
        FINAL[:-1],
        FINAL.replace(b"c=biws", b"c=eSws"),  # y,,
        FINAL.replace(b"c=biws", b"c=!"),
        FINAL.replace(b"r=rO", b"r=xO"),
        FINAL.replace(b"p=dH", b"p=dX"),
        FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=YQ=="),
        FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=a"),
    ],
)
def test_a_last_message_that_isnt_right_proves_nothing(final: bytes) -> None:
    with pytest.raises(ScramError):
        server().finish(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,n=user",
        b"n,,n=us=er,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=" + b"x" * 300,
        b"n,,n=\xff,r=x",
        b"n,,n=" + b"x" * 257 + b",r=x",
        "n,,n=\u0007,r=x".encode(),
        ("n,,n=" + "\ufdfa" * 15 + ",r=x").encode(),
    ],
)
def test_a_first_message_that_isnt_right_gets_no_challenge(first: bytes) -> None:
    with pytest.raises(ScramError):
        ClientFirst.parse(first)


def test_names_are_unescaped_and_prepared() -> None:
    assert ClientFirst.parse(b"n,,n=a=2Cb=3Dc,r=x").user == "a,b=c"
    assert ClientFirst.parse("n,a=I\u00adX,n=I\u00adX,r=x".encode()).user == "IX"


def test_who_doesnt_exist_gets_always_the_same_salt_and_can_prove_nothing() -> None:
    one, other = (
        Verifier.for_unknown_user("ghost", 4096, b"pepper"),
        Verifier.for_unknown_user("ghost", 4096, b"pepper"),
    )
    assert one.salt == other.salt
    assert one.salt != Verifier.for_unknown_user("spook", 4096, b"pepper").salt
    assert len(one.salt) == len(Verifier.made("x", 1).salt)
    exchange = server(one)
    with pytest.raises(ScramError):
        exchange.finish(proved("", FIRST, exchange.challenge))


def prepared(text: str) -> str:
    return saslprep(text, 256)


def test_saslprep_as_rfc_4013_shows_it() -> None:
    assert prepared("I\u00adX") == "IX"
    assert prepared("user") == "user"
    assert prepared("USER") == "USER"
    assert prepared("\u00aa") == "a"
    assert prepared("\u2168") == "IX"
    for prohibited in ("\u0007", "\u0627\u0031"):
        with pytest.raises(ValueError, match="RFC"):
            prepared(prohibited)


@pytest.mark.parametrize("name", ["\ufdfa" * 256, "\u3300" * 256, "\u4e00" * 256, "e\u0301" * 128])
@pytest.mark.parametrize("first", ["n,,n={name},r=x", "n,a={name},n={name},r=x"])
def test_no_name_holds_the_loop(first: str, name: str) -> None:
    data = first.format(name=name).encode()
    taken_s = []
    for _ in range(5):
        begun_s = time.perf_counter()
        with contextlib.suppress(ScramError):
            ClientFirst.parse(data)
        taken_s.append(time.perf_counter() - begun_s)
    assert min(taken_s) < 0.003


def test_a_password_is_bounded_as_it_is_prepared() -> None:
    with pytest.raises(ValueError, match="more than 4096 characters"):
        Verifier.made("\ufdfa" * 1000, 1)
