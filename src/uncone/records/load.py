"""A saved record of any kind."""

from importlib import import_module

from uncone.errors import expect
from uncone.questions import QUESTIONS
from uncone.records.rebuild import build_record, parsed, read_text, schema_of
from uncone.records.record import Record
from uncone.roles import Path_


def kinds() -> list[type[Record]]:
    places = (record.rpartition(".") for _, record, *_ in QUESTIONS.values())
    return [getattr(import_module(f"uncone.{file}"), name) for file, _, name in places]


def load_record(path: Path_) -> Record:
    """Read a record of any kind from a file. InputError: as for `Record.load`, or the schema is unknown."""
    how = "uncone COMMAND --json F"
    data = parsed(read_text(path, how), what="record", how=how)
    schema, of = schema_of(data), {kind.SCHEMA: kind for kind in kinds() if kind.SCHEMA}
    known = ", ".join(map(repr, of))
    expect(schema in of, f"a record whose schema is one of {known}, got {schema!r}: write one with `{how}`")
    return build_record(of[schema or ""], data, of[schema or ""].KIND)
