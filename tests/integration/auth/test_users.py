"""Users in the cluster's log: made on one node, known on all; by password, by SCRAM, from a file, by `flockmq ctl`."""

from __future__ import annotations

import asyncio
import base64
import hmac

import pytest

from flockmq.auth.scram import Verifier
from integration.auth.conftest import API_KEY, Configured, api
from integration.auth.raw import AUTH, CONNACK, Answer, Ended, Raw, connects
from integration.broker.conftest import Node, eventually
from integration.ctl import run_ctl
from integration.dev.commands import Commands
from unit.broker.auth.test_scram import proved

PASSWORDS = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]
"""
SCRAM = """
[authentication]
chain = [{ mechanism = "scram:built_in_database" }]
[authorization]
sources = [{ type = "built_in_database" }]
no_match = "allow"
"""


async def let_in(node: Node, *credentials: str) -> None:
    async with asyncio.timeout(30):
        while await connects(node, *credentials) != 0:
            pass


async def test_a_user_made_on_one_node_is_known_on_all(fleet: Configured) -> None:
    fleet.configure(PASSWORDS)
    core = fleet.core("core-0")
    one, other = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    assert await connects(one, "c", "jo", "pw") == 0x86
    assert api(other, "POST", "/users", {"user_id": "jo", "password": "pw"})[0] == 201
    assert await connects(other, "c", "jo", "pw") == 0, "the node that was asked has it"
    await let_in(one, "c", "jo", "pw")
    assert await connects(one, "c", "jo", "wrong") == 0x86
    assert await connects(one, "c", "ann", "pw") == 0x86
    assert await connects(one, "c") == 0x87
    assert await connects(one, "c", "jo", "wrong", version=4) == 4
    assert await connects(one, "c", version=4) == 5
    assert await connects(one, "c", "jo", "pw", version=4) == 0
    eventually(lambda: api(core, "GET", "/users/jo")[0] == 200, "the core shows the user")
    assert api(core, "DELETE", "/users/jo")[0] == 204
    eventually(lambda: api(one, "GET", "/users/jo")[0] == 404, "the replicant has forgotten the user")
    assert await connects(one, "c", "jo", "pw") == 0x86


async def test_a_disabled_user_hears_what_an_unknown_one_hears_until_it_is_enabled(fleet: Configured) -> None:
    node = fleet.single("""
    [authentication]
    chain = [{ mechanism = "password_based:built_in_database" }, { mechanism = "scram:built_in_database" }]
    """)
    api(node, "POST", "/users", {"user_id": "jo", "password": "pw"})
    for is_disabled, reason in ((False, 0), (True, 0x86), (False, 0)):
        assert api(node, "PUT", "/users/jo", {"is_disabled": is_disabled})[1]["is_disabled"] is is_disabled
        assert await connects(node, "c", "jo", "pw") == reason
        async with await Raw.open(node.mqtt) as client:
            assert (await scram(client, "jo", "pw"))[1].reason == reason


async def test_scram_proves_both_sides_and_may_be_done_again(fleet: Configured) -> None:
    node = fleet.single(SCRAM)
    for name in ("jo", "ann"):
        api(node, "POST", "/users", {"user_id": name, "password": f"{name}'s"})
    api(node, "PUT", "/rules/username/jo", {"rules": [{"permit": "deny", "topics": ["no"]}]})
    async with await Raw.open(node.mqtt) as client:
        verifier, answer = await scram(client, "jo", "jo's")
        assert answer.kind == CONNACK
        assert answer.reason == 0
        assert verifier
        assert await client.publish("yes") in (0, 0x10)
        assert await client.publish("no") == 0x87
        _, answer = await scram(client, "jo", "jo's", again=True)
        assert (answer.kind, answer.reason) == (AUTH, 0)
        assert await client.publish("no") == 0x87
        _, answer = await scram(client, "ann", "ann's", again=True)
        assert answer.reason == 0x87, "somebody else, in the same connection"
        with pytest.raises(Ended):
            await client.answer()


@pytest.mark.parametrize(("user", "password"), [("jo", "wrong"), ("nobody", "x")])
async def test_scram_tells_nothing_before_a_proof_that_is_wrong(fleet: Configured, user: str, password: str) -> None:
    node = fleet.single(SCRAM)
    api(node, "POST", "/users", {"user_id": "jo", "password": "pw"})
    async with await Raw.open(node.mqtt) as client:
        _, answer = await scram(client, user, password)
        assert answer == Answer(CONNACK, 0x86)


async def test_authentication_methods_and_packets_that_there_arent(fleet: Configured) -> None:
    node = fleet.single(SCRAM)
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect(method="SCRAM-SHA-1", data=b"n,,n=jo,r=x")).reason == 0x8C
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect(method="SCRAM-SHA-256")).reason == 0x86, "without data"
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect(method="SCRAM-SHA-256", data=b"n,,n=jo,r=x")).kind == AUTH
        client.auth(0x19, "SCRAM-SHA-256", b"n,,n=jo,r=x")
        with pytest.raises(Ended):
            await client.answer()
    assert await connects(node, "c", "jo", "pw") == 0x86, "a password is no proof"


async def scram(client: Raw, user: str, password: str, *, again: bool = False) -> tuple[Verifier | None, Answer]:
    """The whole exchange: what proves the broker, and its last answer."""
    first = f"n,,n={user},r=clientnonce".encode()
    if again:
        client.auth(0x19, "SCRAM-SHA-256", first)
        challenge = await client.answer(AUTH)
    else:
        challenge = await client.connect(method="SCRAM-SHA-256", data=first)
    assert (challenge.kind, challenge.reason) == (AUTH, 0x18)
    last = proved(password, first, challenge.data)
    client.auth(0x18, "SCRAM-SHA-256", last)
    answer = await client.answer()
    if answer.reason != 0:
        return None, answer
    said = dict(part.split("=", 1) for part in challenge.data.decode().split(","))
    verifier = Verifier.made(password, int(said["i"]), base64.b64decode(said["s"]))
    signed = b",".join((first[3:], challenge.data, last.rpartition(b",p=")[0]))
    assert answer.data == b"v=" + base64.b64encode(hmac.digest(verifier.server_key, signed, "sha256"))
    return verifier, answer


async def test_users_of_a_bootstrap_file_are_there_when_the_node_is_ready(fleet: Configured) -> None:
    users = fleet.directory / "users.csv"
    users.write_text("user_id,password,is_superuser\njo,pw,false\n")
    node = fleet.single(PASSWORDS + f'bootstrap_file = "{users}"\nbootstrap_type = "plain"\n')
    assert await connects(node, "c", "jo", "pw") == 0


def test_a_bootstrap_file_that_cannot_be_read_ends_the_start(fleet: Configured, flockmq: Commands) -> None:
    users = fleet.directory / "users.csv"
    users.write_text("user_id,password\njo,\n")
    fleet.configure(PASSWORDS + f'bootstrap_file = "{users}"\nbootstrap_type = "plain"\n')
    arguments = ("--config", str(fleet.file), "--data-dir", str(fleet.directory / "bad"), "--listen", "127.0.0.1:0")
    code, said = flockmq.refused("run", "--management", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0", *arguments)
    assert (code, said) == (2, f"{users}: line 2: a user needs a password, as bootstrap_type is plain")


def test_users_of_a_file_that_nobody_asks_for_end_the_start(fleet: Configured, flockmq: Commands) -> None:
    fleet.configure('[authentication]\nbootstrap_file = "users.csv"\n')
    code, said = flockmq.refused("run", "--config", str(fleet.file), "--data-dir", str(fleet.directory / "bad"))
    assert code == 2
    assert "authentication" in said
    assert "nothing in chain asks for them; add [[authentication.chain]]" in said


async def test_users_and_rules_that_nobody_asks_for_are_refused(fleet: Configured) -> None:
    node = fleet.single("")
    users = api(node, "POST", "/users", {"user_id": "jo", "password": "pw"})
    rules = api(node, "PUT", "/rules/all", {"rules": [{"permit": "deny"}]})
    assert (users[0], rules[0]) == (409, 409)
    assert "authentication.chain" in str(users[1])
    assert "authorization.sources" in str(rules[1])


def test_the_command_line_manages_users_rules_and_bans(fleet: Configured, flockmq: Commands) -> None:
    node = fleet.single(PASSWORDS + '[authorization]\nsources = [{ type = "built_in_database" }]\n')
    where = ("ctl", "--url", f"http://127.0.0.1:{node.management}", "--api-key-file", str(fleet.key_file))

    def ctl(*arguments: str, password: str = "") -> str:
        done = run_ctl(node.management, "--api-key-file", str(fleet.key_file), *arguments, stdin=password)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    rules = fleet.directory / "rules.toml"
    rules.write_text('[[rules]]\npermit = "allow"\ntopics = ["a/#"]\n')
    assert ctl("users", "add", "jo", password="pw\n") == "user_id=jo\tis_superuser=no\tis_disabled=no\n"
    assert ctl("users", "superuser", "jo", "yes") == "user_id=jo\tis_superuser=yes\tis_disabled=no\n"
    assert ctl("--json", "users", "list") == '{"user_id":"jo","is_superuser":true,"is_disabled":false}\n'
    assert ctl("users", "disable", "jo").endswith("\tis_disabled=yes\n")
    assert ctl("users", "enable", "jo").endswith("\tis_disabled=no\n")
    ctl("rules", "set", "username", "jo", "--file", str(rules))
    assert '"topics":["a/#"]' in ctl("rules", "list")
    assert "as=clientid\twho=c\t" in ctl("bans", "add", "clientid", "c", "--for", "1h")
    ctl("bans", "remove", "clientid", "c")
    ctl("bans", "add", "clientid", "long" * 10_000)
    ctl("bans", "remove", "clientid", "long" * 10_000)
    assert ctl("bans", "list") == ""
    none = (1, f"http://127.0.0.1:{node.management} says 404: there is no session of 'device/7'")
    assert flockmq.refused(*where, "sessions", "remove", "device/7") == none
    ctl("users", "remove", "jo")
    assert flockmq.refused(*where, "users", "show", "jo") == (
        1,
        f"http://127.0.0.1:{node.management} says 404: there is no user 'jo'",
    )
    url = where[2]
    assert flockmq.refused("ctl", "--url", url, "users", "list")[1].startswith("no API key: name the file")
    wrong = flockmq.refused("ctl", "--url", url, "users", "list", environment={"FLOCKMQ_API_KEY": "wrong"})
    assert "the API key is missing, wrong" in wrong[1]
    assert API_KEY not in wrong[1]
