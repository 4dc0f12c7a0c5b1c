"""What is taken from ``cryptography``, imported when the first key is needed."""

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

__all__ = ["AESGCM", "InvalidTag", "RSAPrivateKey", "UnsupportedAlgorithm", "load_pem_private_key"]
