"""From records of runs to medians, ratios and Markdown tables.

A record: {"model", "engine" (its label), "ours", "kv", "threads", "task", "round", "other_cores", "disturbed", "metrics"}.
A ratio is ours by the peer's, of medians: above 1 we are faster. For bytes and milliseconds it is still ours by the
peer's: below 1 we need less.
"""

import statistics

MB = 1e6


def summarize(records):
    """{(model, threads, engine): {metric: {"median", "min", "max", "runs"}}}, in the order of the records."""
    values = {}
    for record in records:
        row = values.setdefault((record["model"], record["threads"], record["engine"]), {})
        for metric, value in record["metrics"].items():
            if isinstance(value, (int, float)):
                row.setdefault(metric, []).append(value)
    return {key: {metric: spread(samples) for metric, samples in row.items()} for key, row in values.items()}


def spread(samples):
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "runs": len(samples),
    }


def ratio(ours, peer, metric):
    """Ours by the peer's, or None where one is missing or nothing was measured."""
    if metric not in ours or metric not in peer or not peer[metric]["median"]:
        return None
    return ours[metric]["median"] / peer[metric]["median"]


def best_peer(rows, metric):
    """The label of the best of {label: summary}, or None: the fastest, or the one with the fewest bytes."""
    able = {label: row[metric]["median"] for label, row in rows.items() if metric in row}
    if not able:
        return None
    return (min if metric.endswith("_bytes") else max)(able, key=able.get)


def _number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(summary, metric, unit=1.0):
    if metric not in summary:
        return "–"
    low, middle, high = (_number(summary[metric][key] / unit) for key in ("min", "median", "max"))
    return middle if summary[metric]["runs"] == 1 else f"{middle} ({low}–{high})"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def bandwidth(summaries, model, threads):
    """Read bandwidth in bytes/s that our runs measured, median, or None."""
    medians = [
        row["read_bandwidth_bytes_s"]["median"]
        for (row_model, row_threads, _), row in summaries.items()
        if (row_model, row_threads) == (model, threads) and "read_bandwidth_bytes_s" in row
    ]
    return statistics.median(medians) if medians else None


def fraction_cell(row, metric, read_bandwidth):
    """Share of the read bandwidth that decoding's weights take; ours counts the KV cache, too."""
    if "bandwidth_fraction" in row:
        return f"{100 * row['bandwidth_fraction']['median']:.0f} %"
    if read_bandwidth and metric in row and "weight_bytes" in row:
        return f"{100 * row['weight_bytes']['median'] * row[metric]['median'] / read_bandwidth:.0f} %"
    return "–"


def speed_tables(summaries, ours_labels, model, threads, plan):
    """The rates of every engine, then ours by each peer's."""
    rows = {label: row for (m, t, label), row in summaries.items() if (m, t) == (model, threads)}
    rates = [f"prefill {n}" for n in plan.prompts] + [f"decode {plan.decode}"]
    rates = [rate for rate in rates if any(rate in row for row in rows.values())]
    if not rates:
        return ""
    read = bandwidth(summaries, model, threads)
    header = ["engine", *rates, "of read bandwidth", "load ms", "first token ms", "peak RSS MB"]
    body = [
        [label, *(cell(row, rate) for rate in rates), fraction_cell(row, rates[-1], read), cell(row, "load_ms"),
         cell(row, "first_token_ms"), cell(row, "peak_rss_bytes", MB)]
        for label, row in rows.items()
        if any(rate in row for rate in rates)
    ]
    return table(header, body) + "\n\n" + ratio_table(rows, ours_labels, rates + ["peak_rss_bytes"])


def ratio_table(rows, ours_labels, metrics):
    """A line for each of ours by each peer, and by the best of them in each column."""
    peers = {label: row for label, row in rows.items() if label not in ours_labels}
    body = []
    for label in (label for label in rows if label in ours_labels):
        for peer, row in peers.items():
            found = [ratio(rows[label], row, metric) for metric in metrics]
            if any(found):
                body.append([f"{label} ÷ {peer}", *("–" if r is None else f"{r:.2f}" for r in found)])
        best = [best_peer(peers, metric) for metric in metrics]
        found = [ratio(rows[label], peers[peer], m) if peer else None for peer, m in zip(best, metrics)]
        if any(found):
            body.append([f"**{label} ÷ best peer**", *("–" if r is None else f"**{r:.2f}**" for r in found)])
    heads = ["peak RSS" if metric == "peak_rss_bytes" else metric for metric in metrics]
    return table(["ratio", *heads], body) if body else ""


def depth_tables(summaries, engines, model, threads, plan):
    """Decoding at depth and the long prompt; ratios only between caches of the same bits."""
    metrics = [f"decode {plan.depth_tokens} @ {depth}" for depth in plan.depths] + [f"prefill {plan.long_prompt}"]
    rows = {
        label: row
        for (m, t, label), row in summaries.items()
        if (m, t) == (model, threads) and any(metric in row for metric in metrics)
    }
    if not rows:
        return ""
    body = [[label, *(cell(row, metric) for metric in metrics)] for label, row in rows.items()]
    text = table(["engine", *metrics], body)
    for kv in ("int8", "f16"):
        same = {label: row for label, row in rows.items() if engines[label]["kv"] == kv}
        ratios = ratio_table(same, {label for label in same if engines[label]["ours"]}, metrics)
        if ratios:
            text += f"\n\nSame bits in the cache, {kv}:\n\n{ratios}"
    return text


def disturbed_note(records):
    disturbed = [record for record in records if record["disturbed"]]
    if not records:
        return "Nothing was measured."
    worst = max(record["other_cores"] for record in records)
    note = f"Other processes took at most {worst:.2f} cores during a run that counts"
    if disturbed:
        return f"{note}; {len(disturbed)} of {len(records)} runs stayed disturbed after repeats."
    return note + "."


def facts_table(facts):
    return table(["", ""], [[key, str(value)] for key, value in facts.items()])


def markdown(report, plan):
    """The section of docs/performance.md: facts, then the tables of each model and number of threads."""
    records, engines = report["records"], report["engines"]
    summaries = summarize(records)
    ours_labels = {label for label, engine in engines.items() if engine["ours"]}
    parts = ["# Peers", facts_table(report["facts"]), disturbed_note(records)]
    for model, threads in dict.fromkeys((record["model"], record["threads"]) for record in records):
        plural = "" if threads == 1 else "s"
        speed = speed_tables(summaries, ours_labels, model, threads, plan)
        if speed:
            read = bandwidth(summaries, model, threads)
            parts.append(f"## {report['models'][model]}, {threads} thread{plural}")
            parts.append("tok/s: median (min–max)." + (f" Read bandwidth {read / 1e9:.1f} GB/s." if read else ""))
            parts.append(speed)
        depth = depth_tables(summaries, engines, model, threads, plan)
        if depth:
            parts += [f"## {report['models'][model]}, {threads} thread{plural}: long contexts", depth]
    parts += failures(report)
    return "\n\n".join(part for part in parts if part) + "\n"


def failures(report):
    if not report["failures"]:
        return []
    return ["## What failed", "\n".join(f"- {failure}" for failure in report["failures"])]
