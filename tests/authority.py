"""A small certificate authority for tests of TLS."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kourou.net.tls import TlsSettings

LOOPBACK = ("DNS:localhost", "IP:127.0.0.1")


class Authority:
    """Signs certificates and keeps them, with their keys, in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(name, self._key, LOOPBACK, ca=True)
        self.path = str(folder / "ca.pem")
        (folder / "ca.pem").write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, password: str | None = None, expired: bool = False, names: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Certificate and key files, as settings. `names` are such as DNS:a.example, URI:spiffe://a, email:a@b."""
        key = ec.generate_private_key(ec.SECP256R1())
        if not names:
            names = LOOPBACK if name != "elsewhere" else (f"DNS:{name}",)
        certificate = self._sign(name, key, names, expired=expired)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        cert_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return {"cert_path": str(cert_path), "key_path": str(key_path)}

    def settings(self, name: str) -> TlsSettings:
        """A side that shows such a certificate, and verifies no peer."""
        files = self.issue(name)
        return TlsSettings(test_mode=False, cert_path=files["cert_path"], key_path=files["key_path"])

    def server_properties(self, name: str = "server") -> dict[str, str]:
        """The settings of a server that shows a certificate and verifies those of its clients."""
        files = self.issue(name)
        return {
            "tls.server.certPath": files["cert_path"],
            "tls.server.keyPath": files["key_path"],
            "tls.server.trustCertPath": self.path,
            "tls.server.authClient": "true",
            "tls.server.need.client.auth": "require",
        }

    def client_properties(self, name: str = "client") -> dict[str, str]:
        """The same for connections that it opens."""
        files = self.issue(name)
        return {
            "tls.client.certPath": files["cert_path"],
            "tls.client.keyPath": files["key_path"],
            "tls.client.trustCertPath": self.path,
            "tls.client.authServer": "true",
        }

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        names: Sequence[str],
        *,
        ca: bool = False,
        expired: bool = False,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if ca else self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now - timedelta(days=1) if expired else now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_name(text) for text in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.GeneralName:
    kind, _, value = text.partition(":")
    match kind:
        case "DNS":
            return x509.DNSName(value)
        case "IP":
            return x509.IPAddress(IPv4Address(value))
        case "URI":
            return x509.UniformResourceIdentifier(value)
        case _:
            return x509.RFC822Name(value)
