//! What the files of a run are, and how other tools compute its headline from the records.

use std::fmt::Write as _;

use super::table::cell;
use crate::conclude::profile::date;
use crate::record::trials;
use crate::record::{Record, RunRecord};
use crate::stat::quantile;
use crate::work::{METHODS, may_be_null};

/// The first format in which names have units.
const UNITS_SINCE: u32 = 2;

const FILES: &str = "\
| file | |
|---|---|
| `run.json` | the targets, the seed, the machine, the command line without keys |
| `records.jsonl` | one JSON object per line: calls, connection events, cells, rollups; or `records.jsonl.gz` |
| `report.html` | every conclusion with its charts, in one file without network |
| `summary.csv`, `summary.md` | the figures of each cell; the conclusions for a pull request |
| `verdicts.json`, `profile.yaml` | the conclusions as data; the settings that follow |

`wellhead analyze schema records` and `schema run` print the JSON Schemas.

Names end in their unit: `_us` microseconds, `_ms` milliseconds, `_share` 0 to 1. `*_at_us` count
from the start of the run, `unix_us` from 1970. `run` and `target_id` name the run and the target.
";

/// `README.md`.
pub(super) fn readme(run: &RunRecord, records: &[Record]) -> String {
    let mut out = format!(
        "# Measured with wellhead {}, {} UTC\n\n{FILES}\n## The headline\n\n\
         Latency of served calls from their intended start, in cells that are not doubted:\n\n\
         | target | experiment | calls | p50, ms | p95, ms |\n|---|---|---|---|---|\n",
        cell(&run.wellhead),
        date(run.started_unix)
    );
    for trial in trials(records) {
        let Some(target) = run.targets.get(trial.target as usize) else { continue };
        let times: Vec<f64> = trial.sound().0.iter().flat_map(|played| played.times()).collect();
        let (Some(p50), Some(p95)) = (quantile(&times, 0.5), quantile(&times, 0.95)) else {
            continue;
        };
        let (target, experiment) = (cell(&target.id), cell(trial.experiment));
        let calls = times.len();
        let _ = writeln!(out, "| {target} | {experiment} | {calls} | {p50:.3} | {p95:.3} |");
    }
    if run.format < UNITS_SINCE {
        out.push_str(
            "\nThis run has format 1: its names have no units, and lines name no target.\n",
        );
        return out;
    }
    out.push_str(&recomputed());
    out
}

/// The lines that compute the table.
fn recomputed() -> String {
    // Methods of which `null` is no answer.
    let never_null: Vec<String> =
        METHODS.into_iter().filter(|name| !may_be_null(name)).map(|it| format!("'{it}'")).collect();
    let never_null = never_null.join(", ");
    format!(
        "\nWith pandas:\n\n```python\n\
         import pandas as pd\n\
         records = pd.read_json(\"records.jsonl\", lines=True)  # or records.jsonl.gz\n\
         key = [\"experiment\", \"target\", \"cell\"]\n\
         cells = records[records.kind == \"cell\"].drop_duplicates(key, keep=\"last\")\n\
         cells = cells[cells.saturated == False][key + [\"begun_at_us\", \"ended_at_us\"]]\n\
         calls = records[records.kind == \"call\"]\n\
         calls = calls.reindex(columns=calls.columns.union([\"error\"]))\n\
         calls = calls.merge(cells, on=key, suffixes=(\"\", \"_of_cell\"))\n\
         calls = calls[calls.begun_at_us.between(calls.begun_at_us_of_cell, calls.ended_at_us_of_cell)]\n\
         done = calls[\"class\"].isin(['answer', 'reverted', 'transaction_known'])\n\
         done |= (calls[\"class\"] == 'null') & ~calls.method.isin([{never_null}])\n\
         served = calls[done & calls.error.isna()]\n\
         took_ms = (served.ended_at_us - served.intended_at_us) / 1000\n\
         print(took_ms.groupby([served.target_id, served.experiment]).quantile([0.5, 0.95]))\n\
         ```\n\nWith DuckDB:\n\n```sql\n\
         WITH r AS (FROM read_json('records.jsonl*', format = 'newline_delimited', columns = {{\n\
         \x20 kind: 'VARCHAR', experiment: 'VARCHAR', target: 'INT', target_id: 'VARCHAR', cell: 'INT',\n\
         \x20 saturated: 'BOOLEAN', begun_at_us: 'BIGINT', ended_at_us: 'BIGINT', intended_at_us: 'BIGINT',\n\
         \x20 method: 'VARCHAR', class: 'VARCHAR', error: 'VARCHAR' }})),\n\
         cells AS (FROM r WHERE kind = 'cell'\n\
         \x20 QUALIFY row_number() OVER (PARTITION BY experiment, target, cell ORDER BY ended_at_us DESC) = 1)\n\
         SELECT call.target_id, call.experiment, count(*) AS calls,\n\
         \x20 quantile_cont((call.ended_at_us - call.intended_at_us) / 1000, [0.5, 0.95]) AS p50_p95_ms\n\
         FROM r AS call JOIN cells AS cell USING (experiment, target, cell)\n\
         WHERE call.kind = 'call' AND NOT cell.saturated\n\
         \x20 AND call.begun_at_us BETWEEN cell.begun_at_us AND cell.ended_at_us AND call.error IS NULL\n\
         \x20 AND (call.class IN ('answer', 'reverted', 'transaction_known')\n\
         \x20   OR call.class = 'null' AND call.method NOT IN ({never_null}))\n\
         GROUP BY ALL ORDER BY ALL;\n```\n"
    )
}
