"""Laws of a replay beyond those its Dagster assets ask at once (`assets.checks`): tokens, clocks, ranks, counts."""

from __future__ import annotations

from assets.checks import IN_DECODE_POOL
from assets.desk.checks import Check

_PASS = "'worker=' || p.worker || ', dp_rank=' || p.dp_rank || ', pass_no=' || p.pass_no"

LAWS = (
    Check(
        "prompts_are_served",
        "error",
        "chunks",
        "the prompt of a completed request = tokens found in the cache + tokens computed, without a gap",
        """
        WITH work AS (
            SELECT request_id, pass_no, computed_before, prompt_tokens, coalesce(cached_tokens, 0) AS cached
            FROM chunks WHERE run_id = $run),
        reached AS (
            SELECT *, greatest(
                coalesce(max(computed_before + prompt_tokens) OVER before, 0), max(cached) OVER upto) AS so_far
            FROM work
            WINDOW upto AS (PARTITION BY request_id ORDER BY pass_no ROWS UNBOUNDED PRECEDING),
                   before AS (PARTITION BY request_id ORDER BY pass_no
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
        served AS (
            SELECT request_id, max(if(prompt_tokens > 0, computed_before - so_far, 0)) AS gap,
                   max(greatest(if(prompt_tokens > 0, computed_before + prompt_tokens, 0), cached)) AS upto
            FROM reached GROUP BY request_id)
        SELECT 'request_id=' || r.request_id AS row_key,
               greatest(s.gap, r.prompt_tokens - coalesce(s.upto, 0)) AS figure
        FROM (FROM requests WHERE run_id = $run AND status = 'completed') r LEFT JOIN served s USING (request_id)
        WHERE s.gap > 0 OR (coalesce(s.upto, 0) < r.prompt_tokens)
        """,
        "{figure:,.0f} tokens of the prompt were neither found nor computed",
    ),
    Check(
        "prefill_tokens_are_conserved",
        "error",
        "passes",
        "prompt tokens of a pass = prompt tokens of its chunks; none in a decode pool, whose price has no prompts",
        f"""
        WITH work AS (
            SELECT worker, dp_rank, pass_no, sum(prompt_tokens) AS tokens, count(*) FILTER (prompt_tokens > 0) AS n
            FROM chunks WHERE run_id = $run AND NOT {IN_DECODE_POOL} GROUP BY ALL)
        SELECT {_PASS} AS row_key, p.prefill_tokens - coalesce(w.tokens, 0) AS figure
        FROM (FROM passes WHERE run_id = $run) p LEFT JOIN work w USING (worker, dp_rank, pass_no)
        WHERE p.prefill_tokens != coalesce(w.tokens, 0) OR p.n_prefill != coalesce(w.n, 0)
        """,
        "the pass has {figure:+,.0f} prompt tokens beside those of its chunks",
    ),
    Check(
        "tokens_are_on_the_clock",
        "error",
        "requests",
        "first and last token of a request = the ends of the passes its spans name, and the way to the client",
        """
        WITH way AS (SELECT coalesce(max(output_path_ns), 0) AS ns FROM runs WHERE run_id = $run),
        p AS (SELECT worker, dp_rank, pass_no, end_ns + way.ns AS end_ns FROM passes, way WHERE run_id = $run),
        s AS (FROM spans WHERE run_id = $run),
        r AS (FROM requests WHERE run_id = $run AND output_tokens > 0)
        SELECT 'request_id=' || r.request_id AS row_key, coalesce(p.end_ns - r.first_token_ns, 0) AS figure
        FROM r JOIN s ON s.request_id = r.request_id AND s.first_token_no = 0
        LEFT JOIN p ON p.worker = s.worker AND p.dp_rank = s.dp_rank AND p.pass_no = s.first_pass
        WHERE p.end_ns IS DISTINCT FROM r.first_token_ns
        UNION ALL
        SELECT 'request_id=' || r.request_id, coalesce(p.end_ns - r.last_token_ns, 0)
        FROM r JOIN s ON s.request_id = r.request_id AND s.first_token_no + s.n_tokens = r.output_tokens
        LEFT JOIN p ON p.worker = s.worker AND p.dp_rank = s.dp_rank
            AND p.pass_no = s.first_pass + coalesce(s.n_passes, s.n_tokens) - 1
        WHERE p.end_ns IS DISTINCT FROM r.last_token_ns
        """,
        "the pass that made the token ends {figure:+,.0f} ns from its recorded time",
    ),
    Check(
        "passes_are_numbered",
        "error",
        "passes",
        "a rank's passes are numbered from 0 without a hole",
        f"""
        SELECT {_PASS} AS row_key, p.pass_no - p.expected AS figure
        FROM (SELECT *, row_number() OVER (PARTITION BY worker, dp_rank ORDER BY pass_no) - 1 AS expected
              FROM passes WHERE run_id = $run) p
        WHERE p.pass_no != p.expected
        """,
        "{figure:,.0f} passes are missing before it",
    ),
    Check(
        "choices_follow_each_other",
        "error",
        "passes",
        "a batch is chosen no later than it starts, and after the one before it",
        f"""
        SELECT {_PASS} AS row_key, greatest(p.chosen_ns - p.start_ns, p.before_ns - p.chosen_ns) AS figure
        FROM (SELECT *, lag(chosen_ns) OVER (PARTITION BY worker, dp_rank ORDER BY pass_no) AS before_ns
              FROM passes WHERE run_id = $run) p
        WHERE p.chosen_ns > p.start_ns OR p.chosen_ns < p.before_ns
        """,
        "the clock goes back by {figure:,.0f} ns",
    ),
    Check(
        "groups_wait_for_the_slowest",
        "error",
        "passes",
        "ranks of a worker start a pass together, and it takes as long as its dearest rank costs",
        """
        SELECT 'worker=' || worker || ', group_pass_no=' || group_pass_no AS row_key,
               max(end_ns) - min(start_ns) - max(prefill_ns + decode_ns) AS figure
        FROM passes WHERE run_id = $run GROUP BY worker, group_pass_no
        HAVING min(start_ns) != max(start_ns) OR min(end_ns) != max(end_ns)
               OR max(end_ns) - min(start_ns) != max(prefill_ns + decode_ns)
        """,
        "the pass takes {figure:+,.0f} ns beside what it costs",
    ),
    Check(
        "blocks_fit_the_pool",
        "error",
        "passes",
        "KV blocks in use, cached and free = the pool of the configuration; the peak is the most that was in use",
        f"""
        WITH about AS (
            SELECT peak_active_blocks AS peak,
                   (config_json ->> '$.engine.workers.aggregated.kv_cache.capacity.blocks')::BIGINT AS pool,
                   (config_json ->> '$.engine.workers.prefill.kv_cache.capacity.blocks')::BIGINT AS of_prefill,
                   (config_json ->> '$.engine.workers.prefill.parallelism.replicas')::BIGINT AS first_decode_worker,
                   (config_json ->> '$.engine.workers.decode.kv_cache.capacity.blocks')::BIGINT AS of_decode
            FROM runs WHERE run_id = $run),
        held AS (
            SELECT p.*, a.peak,
                   coalesce(a.pool, if(p.worker < a.first_decode_worker, a.of_prefill, a.of_decode)) AS pool
            FROM (FROM passes WHERE run_id = $run) p, about a)
        SELECT {_PASS} AS row_key, p.active_blocks + p.cached_blocks + p.free_blocks - p.pool AS figure
        FROM held p
        WHERE p.active_blocks + p.cached_blocks + p.free_blocks != p.pool OR p.active_blocks > p.peak
        """,
        "{figure:+,.0f} blocks beside the pool, or more in use than the recorded peak",
    ),
    Check(
        "blocks_have_owners",
        "error",
        "passes",
        "where everybody running decodes, no more KV blocks are in use than their contexts and drafts fill: none leaks",
        f"""
        -- Room for a round of drafts is reserved with the newest token, also where a pass computes one token for all.
        WITH about AS (
            SELECT (config_json ->> '$.engine.workers.aggregated.kv_cache.block_size')::BIGINT AS block,
                   coalesce((config_json ->> '$.engine.speculation.drafts')::BIGINT, 0) AS drafts
            FROM runs WHERE run_id = $run),
        held AS (
            SELECT p.*, (p.decode_kv_tokens + p.n_decode * a.drafts) // a.block + p.n_decode AS filled
            FROM (FROM passes WHERE run_id = $run) p, about a
            WHERE p.n_prefill = 0 AND p.n_decode = p.n_running AND p.scheduled_tokens = p.n_decode)
        SELECT {_PASS} AS row_key, p.active_blocks - p.filled AS figure FROM held p WHERE p.active_blocks > p.filled
        """,
        "{figure:,.0f} blocks are in use that no running request can fill",
    ),
    Check(
        "passes_count_their_requests",
        "error",
        "passes",
        "admitted and preempted requests of a pass = its rows in admissions and pressure",
        f"""
        WITH entries AS (
            SELECT worker, dp_rank, pass_no, count(*) AS n FROM admissions WHERE run_id = $run GROUP BY ALL),
        losses AS (SELECT worker, dp_rank, pass_no, count(*) AS n FROM pressure WHERE run_id = $run GROUP BY ALL)
        SELECT {_PASS} AS row_key, p.n_admitted + p.n_preempted - coalesce(e.n, 0) - coalesce(l.n, 0) AS figure
        FROM (FROM passes WHERE run_id = $run) p
        LEFT JOIN entries e USING (worker, dp_rank, pass_no) LEFT JOIN losses l USING (worker, dp_rank, pass_no)
        WHERE p.n_admitted != coalesce(e.n, 0) OR p.n_preempted != coalesce(l.n, 0)
        """,
        "the pass counts {figure:+,.0f} beside the recorded ones",
    ),
    Check(
        "runs_count_their_rows",
        "error",
        "requests",
        "completed, rejected and unfinished requests = what the row of runs says, and passes complete no others",
        """
        WITH seen AS (
            SELECT count(*) AS n, count(*) FILTER (status = 'completed') AS completed,
                   count(*) FILTER (status = 'rejected') AS rejected FROM requests WHERE run_id = $run),
        done AS (SELECT coalesce(sum(n_completed), 0) AS n FROM passes WHERE run_id = $run)
        SELECT 'run_id=' || r.run_id AS row_key,
               abs(s.n - r.n_requests) + abs(s.completed - r.n_completed) + abs(s.rejected - r.n_rejected)
               + abs(done.n - s.completed) AS figure
        FROM (FROM runs WHERE run_id = $run) r, seen s, done
        WHERE s.n != r.n_requests OR s.completed != r.n_completed OR s.rejected != r.n_rejected OR done.n != s.completed
        """,
        "{figure:,.0f} requests beside the recorded counts",
    ),
    Check(
        "requests_stay_on_their_rank",
        "error",
        "spans",
        "a request is admitted and makes its tokens on the rank it was sent to, but for prompts that are handed over",
        """
        WITH seen AS (
            SELECT request_id, worker, dp_rank FROM spans WHERE run_id = $run
            UNION ALL SELECT a.request_id, a.worker, a.dp_rank FROM admissions a
                      ANTI JOIN (FROM handoffs WHERE run_id = $run) h
                      ON h.request_id = a.request_id AND h.source_worker = a.worker AND h.source_rank = a.dp_rank
                      WHERE a.run_id = $run)
        SELECT DISTINCT 'request_id=' || s.request_id AS row_key, s.dp_rank AS figure
        FROM seen s LEFT JOIN (FROM requests WHERE run_id = $run) r USING (request_id)
        WHERE s.worker IS DISTINCT FROM r.worker OR s.dp_rank IS DISTINCT FROM r.dp_rank
        """,
        "it was seen on rank {figure:,.0f} of a worker",
    ),
    Check(
        "handoffs_keep_their_order",
        "error",
        "handoffs",
        "a prompt is held, its room reserved (before, with overlap), its KV sent and taken note of, in this order; the "
        "source keeps its blocks until the KV has arrived or is given up; no token comes before",
        """
        SELECT 'request_id=' || h.request_id AS row_key,
               greatest(h.prefill_admitted_ns - h.held_ns, if(o.overlap, NULL, h.held_ns - h.reserved_ns),
                        h.held_ns - h.transferred_ns, h.reserved_ns - h.transferred_ns,
                        h.transferred_ns - h.activated_ns, h.activated_ns - h.decode_admitted_ns,
                        h.reserved_ns - h.queued_ns, h.queued_ns - h.began_ns, h.began_ns - h.transferred_ns,
                        if(h.outcome IN ('transfer_failed', 'timed_out'), r.end_ns, h.transferred_ns) - h.released_ns,
                        r.end_ns - h.withdrawn_ns, h.decode_admitted_ns - r.first_token_ns) AS figure
        FROM (FROM handoffs WHERE run_id = $run) h JOIN (FROM requests WHERE run_id = $run) r USING (request_id),
             (SELECT (config_json ->> '$.engine.kv_transfer.overlap') IS NOT NULL AS overlap
              FROM runs WHERE run_id = $run) o
        WHERE figure > 0
        """,
        "one instant lies {figure:,.0f} ns before the one it follows",
    ),
    Check(
        "handoffs_end_once",
        "error",
        "handoffs",
        "a handoff is activated, or its request failed or was canceled for the reason it has; blocks that were "
        "reserved for one that was not to be are given back, and no others",
        """
        SELECT 'request_id=' || h.request_id AS row_key, h.attempts AS figure
        FROM (FROM handoffs WHERE run_id = $run) h JOIN (FROM requests WHERE run_id = $run) r USING (request_id)
        -- Releases before these columns have nothing in them.
        WHERE h.attempts IS NOT NULL AND (
              (h.activated_ns IS NOT NULL) != (h.outcome IS NOT DISTINCT FROM 'activated')
           OR (h.outcome = 'transfer_failed') != (r.status = 'failed' AND r.reason = 'transfer_failed')
           OR (h.outcome = 'timed_out') != (r.status = 'canceled' AND r.reason = 'handoff_timeout')
           OR (h.outcome IS NULL AND r.status != 'unfinished')
           OR (h.withdrawn_ns IS NOT NULL
               AND (h.reserved_ns IS NULL OR h.outcome NOT IN ('transfer_failed', 'timed_out')))
           OR (h.reserved_ns IS NOT NULL) != (h.attempts > 0))
        """,
        "it was tried {figure:,.0f} times, and how it ended does not fit",
    ),
    Check(
        "transfers_have_time_for_their_bytes",
        "error",
        "handoffs",
        "every transfer takes at least its bytes over the bandwidth, and exactly that where nothing else makes it wait",
        """
        WITH link AS (
            SELECT coalesce(config_json ->> '$.engine.kv_transfer.links', 'none') AS links,
                   coalesce(config_json ->> '$.engine.kv_transfer.sharing', 'fifo') AS sharing,
                   (config_json ->> '$.engine.kv_transfer.overlap') IS NOT NULL AS overlap,
                   CAST(config_json ->> '$.engine.kv_transfer.bandwidth_gb_per_second' AS DOUBLE) AS rate
            FROM runs WHERE run_id = $run)
        SELECT 'request_id=' || h.request_id AS row_key,
               h.sent_bytes / link.rate - (h.transferred_ns - h.began_ns) AS figure
        FROM (FROM handoffs WHERE run_id = $run) h, link
        WHERE h.sent_bytes IS NOT NULL AND h.transferred_ns IS NOT NULL AND link.rate IS NOT NULL
          AND (figure > 1
               OR (figure < -1 AND NOT link.overlap AND (link.links = 'none' OR link.sharing = 'fifo')))
        """,
        "it lacks {figure:,.0f} ns",
    ),
    Check(
        "links_serve_one_after_the_other",
        "error",
        "handoffs",
        "on a first-in-first-out link no two transfers are under way at once",
        """
        WITH link AS (
            SELECT config_json ->> '$.engine.kv_transfer.links' AS links,
                   coalesce(config_json ->> '$.engine.kv_transfer.sharing', 'fifo') AS sharing
            FROM runs WHERE run_id = $run),
        sent AS (
            SELECT h.*, CASE link.links WHEN 'per_source' THEN h.source_worker WHEN 'per_destination' THEN h.worker END
                        AS on_link
            FROM (FROM handoffs WHERE run_id = $run) h, link
            WHERE link.links != 'none' AND link.sharing = 'fifo' AND h.transferred_ns > h.began_ns),
        turns AS (
            SELECT request_id, began_ns, lag(transferred_ns) OVER (PARTITION BY on_link ORDER BY began_ns) AS free_ns
            FROM sent)
        SELECT 'request_id=' || request_id AS row_key, free_ns - began_ns AS figure FROM turns WHERE free_ns > began_ns
        """,
        "it began {figure:,.0f} ns before the link was free",
    ),
    Check(
        "same_work_costs_the_same",
        "error",
        "passes",
        "two passes with the same work have the same price, in the same pool",
        f"""
        -- Where prefill and decode of a pass are one forward, the price of either depends on both.
        WITH p AS (
            SELECT p.*, {IN_DECODE_POOL} AS decodes,
                   if(r.joint, [n_prefill, prefill_tokens, prefill_kv_tokens], NULL) AS prefill,
                   if(r.joint, [n_decode, decode_kv_tokens], NULL) AS decode
            FROM (FROM passes WHERE run_id = $run) p,
                 (SELECT mixed_pass != 'two_prices' AS joint FROM runs WHERE run_id = $run) r)
        SELECT 'prefill of ' || prefill_tokens || ' tokens, ' || prefill_kv_tokens || ' before' AS row_key,
               max(prefill_ns) - min(prefill_ns) AS figure
        FROM p GROUP BY decodes, n_prefill, prefill_tokens, prefill_kv_tokens, n_decode > 0, decode
        HAVING min(prefill_ns) != max(prefill_ns)
        UNION ALL
        SELECT 'decode of ' || n_decode || ' requests, ' || decode_kv_tokens || ' tokens',
               max(decode_ns) - min(decode_ns)
        FROM p GROUP BY decodes, n_decode, decode_kv_tokens, n_prefill > 0, prefill
        HAVING min(decode_ns) != max(decode_ns)
        """,
        "prices of the same work are {figure:,.0f} ns apart",
    ),
    Check(
        "same_replay_gives_the_same",
        "error",
        "requests",
        "every run of this replay_id has the same result digest",
        """
        SELECT 'run_id=' || o.run_id AS row_key, 1 AS figure
        FROM runs o JOIN (FROM runs WHERE run_id = $run) r ON o.replay_id = r.replay_id
        WHERE o.result_digest != r.result_digest
        """,
        "{key} replayed the same and has other rows",
    ),
)
