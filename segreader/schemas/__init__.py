"""Schemas of keys and values: where they come from, for ``scan(…, value=…)`` and everything that reads topics.

A source is asked once, when a read is planned; what it gives is a ``SchemaSet``, which plans and saved states carry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from segreader.schemas.glue_registry import glue as glue
from segreader.schemas.schema_uses import SchemaSurvey as SchemaSurvey
from segreader.schemas.schema_uses import survey as survey
from segreader.schemas.schemas_topic import topic as topic
from segreader.typed.decoding import SchemaSource as SchemaSource
from segreader.typed.registry import Hidden, SchemaRegistry
from segreader.typed.schema import Framing as Framing
from segreader.typed.schema import Schema as Schema
from segreader.typed.schema import SchemaSet as SchemaSet
from segreader.typed.sources import descriptors as descriptors
from segreader.typed.sources import files as files
from segreader.typed.sources import load as load
from segreader.typed.sources import open_schemas as open_schemas

__all__ = [
    "Framing",
    "Schema",
    "SchemaSet",
    "SchemaSource",
    "SchemaSurvey",
    "descriptors",
    "files",
    "glue",
    "load",
    "open_schemas",
    "registry",
    "survey",
    "topic",
]


def registry(
    url: str,
    *,
    auth: Hidden | tuple[Hidden, Hidden] | None = None,
    token: Hidden | None = None,
    headers: Mapping[str, Hidden] | None = None,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    verify: bool = True,
    subject: str | Collection[str] | None = None,
    ids: Collection[int | str] = (),
    framing: Framing | str = Framing.CONFLUENT,
    message: str | None = None,
    timeout_s: float = 30.0,
) -> SchemaRegistry:
    """Schemas of a registry that speaks Confluent's REST contract: Confluent's own, Apicurio, Karapace.

    Nothing is asked before a read is planned. Secrets are sent to this host alone, shown nowhere, and in no pickle.

    Args:
        url: of the contract, with its path: Apicurio's ends in ``/apis/ccompat/v7``, a context of Confluent's in
            ``/contexts/.NAME``. A user and password may be in it.
        auth: ``(user, password)``, or ``"user:password"``. This, ``token`` and the values of ``headers`` may also say
            where they are: ``env:VARIABLE`` or ``@FILE``.
        token: of a ``Bearer``.
        headers: others to send, such as Apicurio's ``X-Registry-GroupId``.
        ca_file: certificates to trust in place of the system's.
        certificate_file, key_file: our own certificate and its key, for a registry that asks for one (mTLS); PEM,
            without a password.
        verify: ``False`` trusts any certificate, with a warning.
        subject: whose schemas to take: one, or several. By default ``<topic>-value`` and ``<topic>-key``.
        ids: others to take, such as those that ``segreader schemas ls`` finds and no subject has: ids or GUIDs.
        framing: how values name their schemas: ``confluent`` (also where ids are in headers), ``apicurio`` (ids of 8
            bytes), ``single-object``.
        message: of Protobuf schemas: the full name of the message whose fields are read; the first one by default.
        timeout_s: for each answer. Failures that may pass are tried five times.

    Raises:
        OptionError: the URL is none, or arguments exclude each other.
    """
    return SchemaRegistry(
        url,
        auth=auth,
        token=token,
        headers=headers,
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=key_file,
        verify=verify,
        subject=subject,
        ids=ids,
        framing=framing,
        message=message,
        timeout_s=timeout_s,
    )
