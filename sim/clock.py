"""Times that follow from the clock of passes: second tokens and inter-token gaps, without a row per token."""

from __future__ import annotations

import numpy as np

from sim.result import Columns


class PassClock:
    """Collects the ends of passes per rank, and derives token times from spans.

    A token made `i` passes into a span became visible when pass `first_pass + i` of its rank ended. A pass in which `w`
    requests made a token, as they did in the pass before, adds its gap `w` times to the inter-token latencies.
    """

    def __init__(self, ranks: int, requests: int, *, keep_spans: bool) -> None:
        self._ends = [np.zeros(1024, np.int64) for _ in range(ranks)]
        self._weights = [np.zeros(1024, np.int64) for _ in range(ranks)]
        self._known = [0] * ranks
        self._breaks: list[tuple[np.ndarray, np.ndarray]] = []  # gaps across spans and when they end
        self._break_requests: list[np.ndarray] = []
        self._spans: list[Columns] | None = [] if keep_spans else None
        self.second_token_ns = np.full(requests, -1, np.int64)

    def passes(self, rows: Columns, dp: int) -> None:
        """Take finished passes, in order per rank."""
        if not len(rows["pass_no"]):
            return
        ends, weights = rows["end_ns"], rows["n_continuing"]
        if len(self._ends) == 1:
            self._append(0, ends, weights)
            return
        rank = rows["worker"] * dp + rows["dp_rank"]
        order = np.argsort(rank, kind="stable")
        places = np.searchsorted(rank[order], np.arange(len(self._ends) + 1))
        ends, weights = ends[order], weights[order]
        for k in range(len(self._ends)):
            if places[k] < places[k + 1]:
                self._append(k, ends[places[k] : places[k + 1]], weights[places[k] : places[k + 1]])

    def _append(self, k: int, ends: np.ndarray, weights: np.ndarray) -> None:
        known = self._known[k]
        if known + len(ends) > len(self._ends[k]):
            size = max(2 * len(self._ends[k]), known + len(ends))
            self._ends[k] = np.concatenate([self._ends[k][:known], np.zeros(size - known, np.int64)])
            self._weights[k] = np.concatenate([self._weights[k][:known], np.zeros(size - known, np.int64)])
        self._ends[k][known : known + len(ends)] = ends
        self._weights[k][known : known + len(ends)] = weights
        self._known[k] = known + len(ends)

    def spans(self, rows: Columns, previous_pass: np.ndarray) -> None:
        """Take ended spans; all their passes must be known. `previous_pass`: last pass of the span before, -1 none."""
        if not len(rows["request"]):
            return
        offset = 1 - rows["first_token_no"]
        holds = (offset >= 0) & (offset < rows["n_tokens"])
        self.second_token_ns[rows["request"][holds]] = self.at(
            rows["rank"][holds], (rows["first_pass"] + offset)[holds]
        )
        later = rows["first_token_no"] > 0
        if later.any():
            end = self.at(rows["rank"][later], rows["first_pass"][later])
            self._breaks.append((end - self.at(rows["rank"][later], previous_pass[later]), end))
            self._break_requests.append(rows["request"][later])
        if self._spans is not None:
            self._spans.append({name: rows[name] for name in ("request", "rank", "first_pass", "n_tokens")})

    def at(self, rank: np.ndarray, pass_no: np.ndarray) -> np.ndarray:
        """Ends of passes, ns."""
        if len(self._ends) == 1:
            return self._ends[0][pass_no]
        out = np.empty(len(rank), np.int64)
        for k in np.unique(rank).tolist():
            mine = rank == k
            out[mine] = self._ends[k][pass_no[mine]]
        return out

    def last_token_ns(self, requests: np.ndarray) -> np.ndarray:
        """Last tokens of requests that had made some when the replay stopped."""
        assert self._spans is not None, "only a stopped replay has unfinished requests"
        last = np.full(len(self.second_token_ns), -1, np.int64)
        for rows in self._spans:
            np.maximum.at(last, rows["request"], self.at(rows["rank"], rows["first_pass"] + rows["n_tokens"] - 1))
        return last[requests]

    def gaps(self, unfinished: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(gap ns, how often, end ns) of all inter-token gaps of completed requests.

        Args:
            unfinished: mask over requests whose gaps do not count, or None when all ended.
        """
        if unfinished is not None and self._spans is not None:
            for rows in self._spans:
                mine = unfinished[rows["request"]] & (rows["n_tokens"] > 1)
                for k, first, n in zip(
                    rows["rank"][mine], rows["first_pass"][mine], rows["n_tokens"][mine], strict=True
                ):
                    self._weights[int(k)][int(first) + 1 : int(first + n)] -= 1
        parts = [(np.zeros(0, np.int64),) * 3]
        for ends, weights, n in zip(self._ends, self._weights, self._known, strict=True):
            counts = weights[1:n]
            some = counts > 0
            parts.append((np.diff(ends[:n])[some], counts[some], ends[1:n][some]))
        for (gap, end), request in zip(self._breaks, self._break_requests, strict=True):
            keep = slice(None) if unfinished is None else ~unfinished[request]
            parts.append((gap[keep], np.ones(len(gap[keep]), np.int64), end[keep]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return columns[0], columns[1], columns[2]
