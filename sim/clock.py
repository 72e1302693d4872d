"""Times that follow from the clock of passes: second tokens and inter-token gaps, without a row per token."""

from __future__ import annotations

import numpy as np

from sim.result import Columns

_BITS = 10
_PAGE = 1 << _BITS  # passes of one rank that lie next to each other


class PassClock:
    """Collects the ends of passes per rank, and derives token times from spans.

    A token made `i` passes into a span became visible when pass `first_pass + i` of its rank ended. A pass in which `w`
    requests made a token, as they did in the pass before, adds its gap `w` times to the inter-token latencies. Tokens
    that one request makes in one pass become visible together: all but the first of them add a gap of 0.

    Nobody knows beforehand which ranks will be busy, so all ranks take pages from one pool.
    """

    def __init__(self, ranks: int, requests: int, *, keep_spans: bool) -> None:
        self._ends, self._weights = np.zeros(_PAGE, np.int64), np.zeros(_PAGE, np.int64)
        self._bursts: list[Columns] = []
        self._together: list[tuple[np.ndarray, np.ndarray]] = []  # tokens made right behind another, pass end
        self._keep_spans = keep_spans
        self._pages = np.zeros((ranks, 1), np.int64)  # pool page of every page of a rank
        self._known = np.zeros(ranks, np.int64)
        self._n_pages = 0
        self._breaks: list[tuple[np.ndarray, np.ndarray]] = []  # gaps across spans and when they end
        self._break_requests: list[np.ndarray] = []
        self._spans: list[Columns] | None = [] if keep_spans else None
        self.second_token_ns = np.full(requests, -1, np.int64)

    def passes(self, rows: Columns, rank: np.ndarray) -> None:
        """Take finished passes of ranks `rank`, in order per rank."""
        number = rows["pass_no"]
        if not len(number):
            return
        opens = np.flatnonzero(number & (_PAGE - 1) == 0)
        if len(opens):
            self._open_pages(rank[opens], number[opens] >> _BITS)
        if len(self._known) == 1:
            place: slice | np.ndarray = slice(int(number[0]), int(number[-1]) + 1)
        else:
            place = self._place(rank, number)
        self._ends[place], self._weights[place] = rows["end_ns"], rows["n_continuing"]
        self._known += np.bincount(rank, minlength=len(self._known))
        if "n_bursts" in rows and rows["n_bursts"] is not rows["n_tokens"]:
            more = rows["n_tokens"] - rows["n_bursts"]
            some = np.flatnonzero(more)
            self._together.append((more[some], rows["end_ns"][some]))

    def _open_pages(self, rank: np.ndarray, page: np.ndarray) -> None:
        total = self._n_pages + len(rank)
        if total << _BITS > len(self._ends):
            more = np.zeros(max(len(self._ends), (total << _BITS) - len(self._ends)), np.int64)
            self._ends, self._weights = (np.concatenate([old, more]) for old in (self._ends, self._weights))
        if int(page.max()) >= self._pages.shape[1]:
            more = np.zeros((len(self._known), int(page.max()) + 1), np.int64)
            self._pages = np.concatenate([self._pages, more], axis=1)
        self._pages[rank, page] = np.arange(self._n_pages, total)
        self._n_pages = total

    def _place(self, rank: np.ndarray | int, pass_no: np.ndarray) -> np.ndarray:
        """Where in the pool passes are. The one rank of a pool has its pages in order."""
        if len(self._known) == 1:
            return pass_no
        return (self._pages[rank, pass_no >> _BITS] << _BITS) + (pass_no & (_PAGE - 1))

    def spans(self, rows: Columns, previous_pass: np.ndarray) -> None:
        """Take ended spans; all their passes must be known. `previous_pass`: last pass of the span before, -1 none."""
        if not len(rows["request"]):
            return
        offset = 1 - rows["first_token_no"]
        holds = (offset >= 0) & (offset < rows["n_tokens"])
        if "first_burst" in rows:
            offset = np.minimum(offset, rows["first_burst"] < 2)
        self.second_token_ns[rows["request"][holds]] = self.at(
            rows["rank"][holds], (rows["first_pass"] + offset)[holds]
        )
        later = rows["first_token_no"] > 0
        if later.any():
            end = self.at(rows["rank"][later], rows["first_pass"][later])
            self._breaks.append((end - self.at(rows["rank"][later], previous_pass[later]), end))
            self._break_requests.append(rows["request"][later])
        if self._spans is not None:
            passes = rows.get("n_passes", rows["n_tokens"])
            self._spans.append({name: rows[name] for name in ("request", "rank", "first_pass")} | {"n_passes": passes})

    def bursts(self, rows: Columns) -> None:
        """Take rows of the bursts table; all their passes must be known."""
        if self._keep_spans:
            self._bursts.append({name: rows[name] for name in ("request", "rank", "first_pass", "tokens_packed")})

    def at(self, rank: np.ndarray, pass_no: np.ndarray) -> np.ndarray:
        """Ends of passes, ns."""
        return self._ends[self._place(rank, pass_no)]

    def last_token_ns(self, requests: np.ndarray) -> np.ndarray:
        """Last tokens of requests that had made some when the replay stopped."""
        assert self._spans is not None, "only a stopped replay has unfinished requests"
        last = np.full(len(self.second_token_ns), -1, np.int64)
        for rows in self._spans:
            np.maximum.at(last, rows["request"], self.at(rows["rank"], rows["first_pass"] + rows["n_passes"] - 1))
        return last[requests]

    def gaps(self, uncounted: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(gap ns, how often, end ns) of all inter-token gaps of completed requests.

        Args:
            uncounted: mask over requests whose gaps do not count, or None when all do.
        """
        if uncounted is not None and self._spans is not None:
            for rows in self._spans:
                mine = uncounted[rows["request"]] & (rows["n_passes"] > 1)
                for k, first, n in zip(
                    rows["rank"][mine], rows["first_pass"][mine], rows["n_passes"][mine], strict=True
                ):
                    self._weights[self._place(int(k), np.arange(first + 1, first + n))] -= 1
        n = int(np.maximum(self._known - 1, 0).sum())
        gap, weight, end, at = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), 0
        for k, n in enumerate(self._known.tolist()):
            if n < 2:
                continue
            # Whole pages: copying them is faster than looking up every pass.
            pages = self._pages[k, : -(-n >> _BITS)]
            ends, weights = (pool.reshape(-1, _PAGE)[pages].ravel()[:n] for pool in (self._ends, self._weights))
            here = slice(at, at + n - 1)
            np.subtract(ends[1:], ends[:-1], out=gap[here])
            weight[here], end[here] = weights[1:], ends[1:]
            at += n - 1
        some = weight > 0
        if not some.all():
            gap, weight, end = gap[some], weight[some], end[some]
        parts = [(gap, weight, end)]
        for (gap, end), request in zip(self._breaks, self._break_requests, strict=True):
            keep = slice(None) if uncounted is None else ~uncounted[request]
            parts.append((gap[keep], np.ones(len(gap[keep]), np.int64), end[keep]))
        parts += self._zero_gaps(uncounted)
        if len(parts) == 1:
            return parts[0]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return columns[0], columns[1], columns[2]

    def _zero_gaps(self, unfinished: np.ndarray | None) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(gap, how often, end ns) between tokens that one request made in one pass."""
        if not self._together:
            return []
        weight, end = (np.concatenate(column) for column in zip(*self._together, strict=True))
        taken: list[tuple[np.ndarray, np.ndarray]] = []
        if unfinished is not None:
            for rows in self._bursts:
                mine = np.flatnonzero(unfinished[rows["request"]])
                packed, place = rows["tokens_packed"][mine].copy(), rows["first_pass"][mine].copy()
                while (packed > 0).any():
                    more = np.flatnonzero((packed & 15) > 1)
                    taken.append(((packed[more] & 15) - 1, self.at(rows["rank"][mine][more], place[more])))
                    packed >>= 4
                    place += 1
        weight = np.concatenate([weight, *(-count for count, _ in taken)])
        end = np.concatenate([end, *(when for _, when in taken)])
        if taken:
            end, place = np.unique(end, return_inverse=True)
            weight = np.bincount(place, weight, minlength=len(end)).astype(np.int64)
        some = weight > 0
        return [(np.zeros(int(some.sum()), np.int64), weight[some], end[some])]
