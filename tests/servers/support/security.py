"""A listener that wants TLS and a password: certificates made for the test, and the server's
properties."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LISTENERS = {"PLAINTEXT": "{port}", "SECURE": "{spare}", "CONTROLLER": "{controller}"}
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SECURE": "SASL_SSL", "CONTROLLER": "PLAINTEXT"}


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority of one test."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate(whose, whose, key).add_extension(
            x509.BasicConstraints(True, None), critical=True
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    def write(self, path: Path) -> Path:
        """Write what clients trust."""
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def write_server(self, path: Path) -> Path:
        """Write the key and the certificate of a server on 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = _certificate(whose, self.certificate.subject, key).add_extension(
            names, critical=False
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return path


def secure_properties(
    folder: Path,
    authority: Authority,
    user: str,
    password: str,
    more: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Properties of a broker that lets a user in by the password; by SCRAM too, once the user is
    entered there.

    `more` are ports of further listeners by their security.protocol.
    """
    keys = authority.write_server(folder / "server.pem")
    trusted = authority.write(folder / "trusted.pem")
    modules = "org.apache.kafka.common.security"
    ports = {
        **LISTENERS,
        **{f"{name.replace('_', '')}X": str(port) for name, port in (more or {}).items()},
    }
    protocols = {**PROTOCOLS, **{f"{name.replace('_', '')}X": name for name in more or {}}}
    places = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    let_in = f'{modules}.plain.PlainLoginModule required user_{user}="{password}";'
    by_password = [
        name.lower() for name, protocol in protocols.items() if protocol.startswith("SASL")
    ]
    return {
        "listeners": ",".join(places),
        "advertised.listeners": ",".join(
            place for place in places if not place.startswith("CONTROLLER")
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # whoever comes by the plain listener
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        **{f"listener.name.{name}.plain.sasl.jaas.config": let_in for name in by_password},
        **{
            f"listener.name.{name}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;"
            for name in by_password
        },
    }


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
