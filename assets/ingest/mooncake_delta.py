"""Mooncake JSON lines whose later turns give only what is new (rule WL-13); nothing in the file says so.

Turn k's prompt is the whole conversation before it, prompts and generated output, and then its own `input_length`
tokens with their `hash_ids`. Lengths, ids and times are read as in `mooncake`. Generated text is new at every turn,
so conversations share what their first prompts share, and a turn finds everything before it: generated blocks, too.
"""

from __future__ import annotations

from assets.ingest import mooncake
from assets.ingest.fields import MAX_TOKENS, BadRow
from assets.ingest.parser import Format, Options, never
from assets.ingest.rows import Row
from assets.ingest.runs_of_text import Text, blocks


class Reader(mooncake.Reader):
    """Reads one file's lines."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._texts: dict[str, Text] = {}
        self._latest: tuple[str | None, Text] = (None, Text(1))
        self._n_rows = 0

    @property
    def block_tokens(self) -> int:
        """A joined text has no blocks of its own; in the engine's its parts are told apart exactly."""
        return self.options.cut_tokens or self.options.block_tokens

    def row(self, line: bytes) -> Row:
        row = super().row(line)
        if row.hash_ids is None:
            raise BadRow("missing_field", "hash_ids")
        text = self._texts.get(row.session) if row.session is not None else None
        known = text.tokens if text is not None else 0
        if known + row.prompt_tokens + row.output_tokens > MAX_TOKENS:
            raise BadRow("out_of_range", "input_length", known + row.prompt_tokens)
        self._n_rows += 1
        text = text.copy() if text is not None else Text(self.block_tokens)
        text.append(blocks(row.hash_ids, self.options.block_tokens, row.prompt_tokens))
        text.append([(("generated", self._n_rows), row.output_tokens)])
        self._latest = row.session, text
        return row._replace(prompt_tokens=known + row.prompt_tokens, hash_ids=text.ids(), hashed_tokens=text.tokens)

    def kept(self) -> None:
        """The row made last is in the trace; what is set aside is not part of a conversation."""
        session, text = self._latest
        if session is not None:
            self._texts[session] = text


FORMAT = Format("mooncake-delta", "Mooncake JSON lines of new input", never, Reader)
