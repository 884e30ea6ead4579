"""Files with passwords and certificates: what is refused is named."""

from pathlib import Path

import pytest
import trustme

from pyspark_flockmq.errors import OptionError
from pyspark_flockmq.secret_files import read_password, tls_context


def test_the_password_is_the_files_text_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" s3cret \r\n")
    assert read_password(str(file)) == " s3cret "


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_a_password_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=f"the password file {file}"):
        read_password(str(file))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't be read: No such file or directory"):
        read_password(str(tmp_path / "none"))
    with pytest.raises(OptionError, match=r"the cacertfile .*/none can't be read: No such file or directory"):
        tls_context(str(tmp_path / "none"), None, None)


def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("not PEM")
    with pytest.raises(OptionError, match="the cacertfile, certfile or keyfile can't be used"):
        tls_context(str(file), None, None)


def test_the_authority_of_the_file_is_believed_and_no_other(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    assert len(tls_context(str(tmp_path / "ca.crt"), None, None).get_ca_certs()) == 1
