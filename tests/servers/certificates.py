"""An authority of the tests' own, and a certificate by it for 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """PEM files in ``folder``, which every user can read."""

    def __init__(self, folder: Path) -> None:
        self.ca_file, self.cert_file, self.key_file = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = _certificate("tests' authority", authority, "tests' authority", authority, is_authority=True)
        mine = _certificate("127.0.0.1", key, "tests' authority", authority, is_authority=False)
        Path(self.ca_file).write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        Path(self.cert_file).write_bytes(mine.public_bytes(serialization.Encoding.PEM))
        Path(self.key_file).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        for path in (self.ca_file, self.cert_file, self.key_file):
            Path(path).chmod(0o644)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, is_authority: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signer, hashes.SHA256())
