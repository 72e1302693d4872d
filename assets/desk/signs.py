"""Signs of trouble: nothing is broken, but a person should look. Compared with the run itself and with its history."""

from __future__ import annotations

from assets.desk.checks import Check

_PASS = "'worker=' || p.worker || ', dp_rank=' || p.dp_rank || ', pass_no=' || p.pass_no"

SIGNS = (
    Check(
        "pass_time_outlier",
        "warning",
        "passes",
        "no pass costs more than twice, or less than half, the median of twenty passes or more with like work",
        f"""
        WITH p AS (
            SELECT worker, dp_rank, pass_no, 'prefill' AS phase, prefill_ns AS ns, n_prefill AS n,
                   n_decode > 0 AS mixed,
                   floor(8 * log2(prefill_tokens))::BIGINT AS x, floor(4 * log2(1 + prefill_kv_tokens))::BIGINT AS y
            FROM passes WHERE run_id = $run AND prefill_tokens > 0
            UNION ALL
            SELECT worker, dp_rank, pass_no, 'decode', decode_ns, n_decode, n_prefill > 0,
                   floor(8 * log2(decode_kv_tokens))::BIGINT, 0
            FROM passes WHERE run_id = $run AND n_decode > 0 AND decode_kv_tokens > 0),
        usual AS (
            SELECT phase, n, mixed, x, y, pct(ns, 50) AS median FROM p GROUP BY ALL HAVING count(*) >= 20)
        SELECT {_PASS} AS row_key, p.ns / u.median AS figure
        FROM p JOIN usual u USING (phase, n, mixed, x, y)
        WHERE u.median > 0 AND (p.ns > 2 * u.median OR 2 * p.ns < u.median)
        """,
        "it costs {figure:.2f} times the median of passes with like work",
    ),
    Check(
        "throughput_step",
        "warning",
        "passes",
        "like passes of the first and the second half of the replay take the same time, within a tenth",
        """
        WITH p AS (
            SELECT start_ns > (max(start_ns) OVER ()) // 2 AS later, n_decode,
                   floor(8 * log2(decode_kv_tokens))::BIGINT AS x, end_ns - start_ns AS ns
            FROM passes WHERE run_id = $run AND n_prefill = 0 AND n_decode > 0 AND decode_kv_tokens > 0),
        likes AS (
            SELECT n_decode, x, pct(if(later, ns, NULL), 50) AS later_ns, pct(if(later, NULL, ns), 50) AS sooner_ns,
                   least(count(*) FILTER (later), count(*) FILTER (NOT later)) AS n
            FROM p GROUP BY ALL HAVING n >= 10)
        SELECT 'second half of the replay' AS row_key,
               sum(later_ns * n)::DOUBLE / nullif(sum(sooner_ns * n), 0) AS figure
        FROM likes HAVING figure > 1.1 OR figure < 1 / 1.1
        """,
        "like passes take {figure:.2f} times as long there",
    ),
    Check(
        "throughput_history",
        "warning",
        "metrics",
        "output throughput is within a tenth of the median of the ten runs before it of the same name and traffic; of "
        "those with the same settings, where there are any",
        """
        WITH own AS (FROM runs WHERE run_id = $run),
        earlier AS (
            SELECT o.run_id, o.config_digest = r.config_digest AS alike
            FROM runs o JOIN own r ON o.name = r.name AND o.trace_digest = r.trace_digest
                AND (o.config_json -> '$.traffic') IS NOT DISTINCT FROM (r.config_json -> '$.traffic')
                AND o.run_id < r.run_id
            -- Two settings tried in turn under one name are not each other's history.
            QUALIFY alike = max(alike) OVER ()
            ORDER BY o.run_id DESC LIMIT 10),
        usual AS (
            SELECT pct(m.value, 50) AS value, count(*) AS n FROM metrics m JOIN earlier USING (run_id)
            WHERE m.scope = 'run' AND m.metric = 'output_throughput' AND m.stat = 'mean')
        SELECT 'scope=run, metric=output_throughput, stat=mean' AS row_key, m.value / u.value AS figure
        FROM metrics m, usual u
        WHERE m.run_id = $run AND m.scope = 'run' AND m.metric = 'output_throughput' AND m.stat = 'mean'
              AND u.n > 0 AND u.value > 0 AND (m.value > 1.1 * u.value OR 1.1 * m.value < u.value)
        """,
        "throughput is {figure:.3f} times the usual",
    ),
    Check(
        "queue_growth",
        "warning",
        "passes",
        "the queue does not reach 64 requests by growing in every eighth of the time of arrivals",
        """
        WITH span AS (SELECT max(arrival_ns) + 1 AS ns FROM requests WHERE run_id = $run),
        eighths AS (
            SELECT chosen_ns * 8 // s.ns AS i, max(n_waiting + n_waiting_preempted) AS waiting
            FROM (FROM passes WHERE run_id = $run) p, span s WHERE chosen_ns < s.ns GROUP BY ALL),
        steps AS (SELECT i, waiting, lag(waiting) OVER (ORDER BY i) AS before FROM eighths)
        SELECT 'requests waiting' AS row_key, max(waiting) AS figure FROM steps
        HAVING count(*) = 8 AND count(*) FILTER (waiting > before) = 7 AND max(waiting) >= 64
               AND (SELECT count(*) FROM requests WHERE run_id = $run AND status = 'completed') > 0
        """,
        "{figure:,.0f} requests wait in the end, and the queue only grew: more is offered than can be served",
    ),
    Check(
        "thrashing",
        "warning",
        "pressure",
        "no request loses more than ten times its own tokens to preemptions",
        """
        WITH lost AS (SELECT request_id, sum(tokens_lost) AS tokens FROM pressure WHERE run_id = $run GROUP BY ALL)
        SELECT 'request_id=' || l.request_id AS row_key, l.tokens / (r.prompt_tokens + r.requested_tokens) AS figure
        FROM lost l JOIN (FROM requests WHERE run_id = $run) r USING (request_id)
        WHERE l.tokens > 10 * (r.prompt_tokens + r.requested_tokens)
        """,
        "it lost {figure:.0f} times its own tokens: near a livelock",
    ),
    Check(
        "barren_passes",
        "warning",
        "passes",
        "no rank runs thirty passes in a row that preempt and make no token",
        f"""
        SELECT {_PASS} AS row_key, barren AS figure
        FROM (SELECT *, count(*) FILTER (n_preempted > 0 AND n_tokens = 0) OVER (
                  PARTITION BY worker, dp_rank ORDER BY pass_no ROWS BETWEEN 29 PRECEDING AND CURRENT ROW) AS barren
              FROM passes WHERE run_id = $run) p
        WHERE barren >= 30
        """,
        "{figure:.0f} passes in a row preempt and make no token: near a livelock",
    ),
    Check(
        "idle_with_work",
        "warning",
        "passes",
        "a worker does not stand still while its requests run",
        """
        WITH groups AS (
            SELECT worker, group_pass_no, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(n_running) AS running,
                   sum(n_completed) AS completed
            FROM passes WHERE run_id = $run
                 -- Prompts that are handed over leave a worker without ending there.
                 AND worker NOT IN (SELECT source_worker FROM handoffs WHERE run_id = $run)
            GROUP BY ALL),
        steps AS (
            SELECT *, lag(end_ns) OVER w AS free_ns, lag(running) OVER w - lag(completed) OVER w
                   - coalesce(lag(completed, 2) OVER w, 0) AS left_running
            FROM groups WINDOW w AS (PARTITION BY worker ORDER BY group_pass_no))
        SELECT 'worker=' || worker || ', group_pass_no=' || group_pass_no AS row_key, start_ns - free_ns AS figure
        FROM steps WHERE start_ns > free_ns AND left_running > 0
        """,
        "the worker stood still for {figure:,.0f} ns before it",
    ),
    Check(
        "much_is_extrapolated",
        "warning",
        "evidence",
        "at most a fifth of the time is priced outside the performance data",
        """
        SELECT 'phase=' || phase AS row_key, extrapolated_share AS figure
        FROM evidence_summary WHERE run_id = $run AND extrapolated_share > 0.2
        """,
        "{figure:.1%} of its time lies outside the measured data",
    ),
)
