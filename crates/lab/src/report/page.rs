//! The page: one file, nothing from elsewhere.

use super::figures::{chapters, times};
use super::record::{Record, Who};
use crate::goals::Verdict;
use crate::plot::Unit;
use crate::plot::xml::Xml;

const STYLE: &str = include_str!("page.css");

/// The page. `figures` are part of it.
pub fn html(record: &Record) -> String {
    let mut xml = Xml::default();
    xml.raw("<!doctype html>\n");
    xml.open("html").attr("lang", "en");
    xml.open("head");
    xml.open("meta").attr("charset", "utf-8").close();
    xml.open("meta")
        .attr("name", "viewport")
        .attr("content", "width=device-width, initial-scale=1")
        .close();
    xml.open("meta")
        .attr("name", "color-scheme")
        .attr("content", "light dark")
        .close();
    xml.leaf("title", "Vervain: performance report");
    xml.open("style").raw(STYLE).close();
    xml.close();
    xml.open("body");
    xml.open("main");
    xml.open("header");
    xml.leaf("h1", "How fast is Vervain here?");
    xml.open("p").attr("class", "quiet");
    xml.text(&record.head.source()).close();
    xml.close();
    cards(&mut xml, record);
    goals(&mut xml, record);
    for chapter in chapters(record) {
        xml.open("section");
        xml.leaf("h2", chapter.title);
        xml.leaf("p", chapter.text);
        for figure in &chapter.figures {
            xml.open("figure").attr("id", figure.name);
            xml.raw(&figure.svg).close();
        }
        xml.close();
    }
    limit(&mut xml, record);
    settings(&mut xml, record);
    repeat(&mut xml, record);
    xml.close().close().close();
    xml.finish()
}

/// The three answers.
fn cards(xml: &mut Xml, record: &Record) {
    let ratios = &record.ratios;
    let mut cards: Vec<(String, String)> = Vec::new();
    if let Some(mops) = ratios.herd_mops {
        let best = record.windows.iter().find(|curve| curve.who == Who::Herd);
        let window = best
            .and_then(|curve| curve.best())
            .map_or(String::new(), |best| format!(" with {} under way", best.x));
        cards.push((
            format!("{} M/s", Unit::Number.show(mops)),
            format!("requests on one server core over RDMA{window}"),
        ));
    }
    if let Some(ratio) = ratios.herd_vs_memcached {
        let peer = record.settings.peer.as_deref().unwrap_or("memcached");
        cards.push((times(ratio), format!("the best of {peer} on the same core")));
    }
    if let Some(ratio) = ratios.herd_vs_exchange {
        cards.push((
            format!("{:.0} %", 100.0 * ratio),
            "of what two cores can do that only exchange cache lines".to_string(),
        ));
    }
    if cards.is_empty() {
        return;
    }
    xml.open("ul").attr("class", "cards");
    for (figure, text) in cards {
        xml.open("li");
        xml.open("b").text(&figure).close();
        xml.open("span").text(&text).close();
        xml.close();
    }
    xml.close();
}

fn goals(xml: &mut Xml, record: &Record) {
    xml.open("section");
    xml.leaf("h2", "Figures and goals");
    xml.open("div").attr("class", "wide");
    xml.open("table").attr("class", "goals");
    head(xml, &["figure", "here", "goal", "", "what it means"]);
    xml.open("tbody");
    for (goal, figure) in record.ratios.rows() {
        let verdict = goal.judge(figure);
        xml.open("tr");
        xml.open("th").attr("scope", "row");
        xml.text(goal.title).close();
        xml.open("td").attr("class", "number");
        xml.text(&goal.show(figure)).close();
        xml.open("td").attr("class", "number quiet");
        xml.text(&goal.bound.show()).close();
        let class = match verdict {
            Verdict::Reached => "good",
            Verdict::Missed => "bad",
            Verdict::Unknown => "quiet",
        };
        xml.open("td").attr("class", class);
        xml.text(&format!("{} {}", verdict.mark(), verdict.word()))
            .close();
        xml.leaf("td", goal.meaning);
        xml.close();
    }
    xml.close().close().close();
    xml.close();
}

fn head(xml: &mut Xml, names: &[&str]) {
    xml.open("thead");
    xml.open("tr");
    for name in names {
        xml.open("th").attr("scope", "col");
        // A column that says itself what it holds still has a name for those who hear it.
        if name.is_empty() {
            xml.attr("aria-label", "reached or missed");
        }
        xml.text(name).close();
    }
    xml.close().close();
}

/// A table of names and values.
fn pairs(xml: &mut Xml, rows: &[(&str, String)]) {
    xml.open("div").attr("class", "wide");
    xml.open("table").attr("class", "pairs");
    xml.open("tbody");
    for (name, value) in rows {
        xml.open("tr");
        xml.open("th").attr("scope", "row");
        xml.text(name).close();
        xml.leaf("td", value);
        xml.close();
    }
    xml.close().close().close();
}

fn limit(xml: &mut Xml, record: &Record) {
    let Some(limit) = &record.limit else {
        return;
    };
    let ns = |ns: f64| Unit::Nanoseconds.show(ns);
    let mops = |mops: f64| format!("{} million a second", Unit::Number.show(mops));
    xml.open("section");
    xml.leaf("h2", "What this machine can do at all");
    let mut rows = vec![
        (
            "a cache line to the other core and one back",
            ns(limit.pingpong_ns.mid),
        ),
        (
            "cache lines one way through a ring",
            mops(limit.ring_mops.mid),
        ),
        (
            "longest time a loop that does nothing else stood still",
            format!(
                "{}; {:.1} % of the time in all, which no latency here can hide",
                ns(limit.stall_longest_us * 1e3),
                limit.stalled_percent
            ),
        ),
        (
            "a random read that waits for the one before",
            ns(limit.dependent_read_ns),
        ),
        (
            "random reads that do not",
            mops(limit.independent_reads_mops),
        ),
    ];
    if let Some(best) = record
        .windows
        .iter()
        .find(|curve| curve.who == Who::Exchange)
        .and_then(|curve| curve.best())
    {
        let text = format!("{} ({} under way)", mops(best.y.mid), best.x);
        rows.push(("bare exchange of slots, at its best", text));
    }
    pairs(xml, &rows);
    xml.close();
}

fn settings(xml: &mut Xml, record: &Record) {
    let (head, settings) = (&record.head, &record.settings);
    let machine = &head.machine;
    let caches = machine.caches.iter();
    let caches: Vec<String> = caches
        .map(|cache| {
            let size = Unit::Bytes.show(cache.bytes as f64);
            format!("L{} {} {size}", cache.level, cache.holds.to_lowercase())
        })
        .collect();
    let cpus = |cpus: &[usize]| {
        let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        if cpus.is_empty() {
            "wherever the kernel lets them".to_string()
        } else {
            cpus.join(", ")
        }
    };
    let unknown = || "unknown".to_string();
    xml.open("section");
    xml.leaf("h2", "Machine and settings");
    let virtual_note = if machine.is_virtual {
        "; a virtual machine, whose neighbours may take time and caches"
    } else {
        ""
    };
    pairs(
        xml,
        &[
            (
                "CPU",
                format!("{}, {} of them{virtual_note}", machine.cpu, machine.cpus),
            ),
            (
                "caches",
                if caches.is_empty() {
                    unknown()
                } else {
                    caches.join(", ")
                },
            ),
            (
                "memory",
                machine
                    .memory_bytes
                    .map_or_else(unknown, |bytes| Unit::Bytes.show(bytes as f64)),
            ),
            ("kernel", machine.kernel.clone()),
            (
                "clock rate",
                machine.governor.clone().unwrap_or_else(unknown),
            ),
            (
                "version",
                format!("vervain {}, {}", head.version, head.commit.show()),
            ),
            (
                "memcached",
                settings
                    .peer
                    .clone()
                    .unwrap_or_else(|| "not installed".to_string()),
            ),
            (
                "begun",
                format!("{}, took {:.0} s", head.date, head.seconds),
            ),
            ("servers on CPU", cpus(&settings.server_cpus)),
            ("clients on CPU", cpus(&settings.client_cpus)),
            (
                "each figure",
                format!(
                    "the median of {} rounds of {} s; sides that are compared alternate",
                    settings.rounds, settings.slice_s
                ),
            ),
            ("seed", settings.seed.to_string()),
        ],
    );
    if !head.left_out.is_empty() {
        xml.leaf("h3", "Not measured");
        xml.open("ul");
        for left in &head.left_out {
            xml.leaf("li", &format!("{}: {}", left.what, left.why));
        }
        xml.close();
    }
    xml.close();
}

fn repeat(xml: &mut Xml, record: &Record) {
    xml.open("section");
    xml.leaf("h2", "To repeat this");
    xml.open("pre");
    xml.leaf(
        "code",
        &format!("cargo lab {}", record.settings.flags.join(" ")),
    );
    xml.close();
    xml.open("p");
    xml.text("Leave the machine alone meanwhile. Every figure of this page is in ");
    xml.leaf("code", "report.json");
    xml.text(" beside it; ");
    xml.leaf("code", "cargo lab report --from report.json");
    xml.text(" draws the page again without measuring.").close();
    xml.close();
}
