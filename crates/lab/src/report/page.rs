//! The page: one file, nothing from elsewhere.

use serde::Serialize;
use serde_json::Value;

use super::figures::{Chapter, chapters, times};
use super::record::{Record, Who};
use crate::goals::{Goal, Verdict};
use crate::plot::{Unit, escaped};

/// The page. Figures are part of it.
pub fn html(record: &Record) -> String {
    let style = include_str!("page.css");
    let source = escaped(&record.head.source());
    let flags = escaped(&record.settings.flags.join(" "));
    let rows: String = record.ratios.rows().map(goal).collect();
    let chapters: String = chapters(record).iter().map(chapter).collect();
    let cards = cards(record);
    let limits = record.limit.as_ref();
    let limits = limits.map(|limit| facts("What this machine can do at all", limit));
    let limits = limits.unwrap_or_default();
    let machine = facts("The machine", &record.head.machine);
    let settings = facts("Settings", &record.settings);
    let left_out = left_out(record);
    format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>Vervain: performance report</title><style>{style}</style></head>
<body><main><header><h1>How fast is Vervain here?</h1><p class="quiet">{source}</p></header>
{cards}
<section><h2>Figures and goals</h2><div class="wide"><table class="goals"><thead><tr>
<th scope="col">figure</th><th scope="col">here</th><th scope="col">goal</th>
<th scope="col" aria-label="reached or missed"></th><th scope="col">what it means</th>
</tr></thead><tbody>{rows}</tbody></table></div></section>
{chapters}{limits}{machine}{settings}{left_out}
<section><h2>To repeat this</h2><pre><code>cargo lab {flags}</code></pre>
<p>Leave the machine alone meanwhile. Every figure of this page is in <code>report.json</code> beside it;
<code>cargo lab report --from report.json</code> draws the page again without measuring.</p></section>
</main></body></html>
"#
    )
}

fn goal((goal, figure): (&Goal, Option<f64>)) -> String {
    let verdict = goal.judge(figure);
    let class = match verdict {
        Verdict::Reached => "good",
        Verdict::Missed => "bad",
        Verdict::Unknown => "quiet",
    };
    let (title, meaning) = (escaped(goal.title), escaped(goal.meaning));
    let (shown, bound) = (goal.show(figure), goal.bound.show());
    let (mark, word) = (verdict.mark(), verdict.word());
    format!(
        r#"<tr><th scope="row">{title}</th><td class="number">{shown}</td>
<td class="number quiet">{bound}</td><td class="{class}">{mark} {word}</td><td>{meaning}</td></tr>
"#
    )
}

fn chapter(chapter: &Chapter) -> String {
    let figures: String = chapter
        .figures
        .iter()
        .map(|figure| format!("<figure id=\"{}\">{}</figure>\n", figure.name, figure.svg))
        .collect();
    section(
        chapter.title,
        &format!("<p>{}</p>\n{figures}", escaped(chapter.text)),
    )
}

fn section(title: &str, inside: &str) -> String {
    format!("<section><h2>{title}</h2>{inside}</section>\n")
}

/// A part of the document as a table of names and values.
fn facts(title: &str, part: &impl Serialize) -> String {
    let mut rows = String::new();
    let part = serde_json::to_value(part);
    add_rows(&mut rows, "", &part.unwrap_or_default());
    let table = format!("<table class=\"pairs\"><tbody>{rows}</tbody></table>");
    section(title, &format!("<div class=\"wide\">{table}</div>"))
}

fn add_rows(rows: &mut String, name: &str, value: &Value) {
    let shown = match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = format!("{name} {}", field.replace('_', " "));
                add_rows(rows, &name, value);
            }
            return;
        }
        Value::Null => "unknown".to_string(),
        Value::String(text) => text.clone(),
        // Of figures three digits tell enough.
        Value::Number(number) if number.is_f64() => {
            Unit::Number.show(number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    };
    let (name, shown) = (escaped(name.trim_start()), escaped(&shown));
    *rows += &format!("<tr><th scope=\"row\">{name}</th><td>{shown}</td></tr>\n");
}

/// The best of a curve by requests under way, and how many these were.
fn best(record: &Record, who: Who) -> Option<(f64, f64)> {
    let curve = record.windows.iter().find(|curve| curve.who == who)?;
    curve.best().map(|best| (best.y.mid, best.x))
}

/// The three answers.
fn cards(record: &Record) -> String {
    let ratios = &record.ratios;
    let speed = ratios.herd_mops.map(|mops| {
        let window = best(record, Who::Herd);
        let window = window.map_or(String::new(), |(_, x)| format!(" with {x} under way"));
        (
            format!("{} M/s", Unit::Number.show(mops)),
            format!("requests on one server core over RDMA{window}"),
        )
    });
    let peer = record.settings.peer.as_deref().unwrap_or("memcached");
    let against = ratios.herd_vs_memcached;
    let against =
        against.map(|ratio| (times(ratio), format!("the best of {peer} on the same core")));
    let share = ratios.herd_vs_exchange.map(|ratio| {
        let what = "of what two cores can do that only exchange cache lines";
        (format!("{:.0} %", 100.0 * ratio), what.to_string())
    });
    let cards: String = [speed, against, share]
        .iter()
        .flatten()
        .map(|(figure, text)| format!("<li><b>{figure}</b><span>{}</span></li>", escaped(text)))
        .collect();
    match cards.is_empty() {
        true => cards,
        false => format!("<ul class=\"cards\">{cards}</ul>"),
    }
}

fn left_out(record: &Record) -> String {
    let left = |left: &super::LeftOut| {
        let (what, why) = (escaped(&left.what), escaped(&left.why));
        format!("<li>{what}: {why}</li>")
    };
    let left_out: String = record.head.left_out.iter().map(left).collect();
    match left_out.is_empty() {
        true => left_out,
        false => section("Not measured", &format!("<ul>{left_out}</ul>")),
    }
}
