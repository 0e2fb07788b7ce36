//! Reports: a JSON document, plots, and a page that answers how fast it is here, compared with
//! memcached, and how far from the machine's limit.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | [`write_files`]: a report as a folder |
//! | `record.rs` | [`Record`], the document that everything else is made from |
//! | `hardware.rs` | the machine in it |
//! | `figures.rs` | which plots there are |
//! | `page.rs`, `page.css` | the page |
//! | `run` | the run that measures it all |
//! | `summary.rs` | the short table, for terminals and READMEs |

pub mod command;
mod figures;
mod hardware;
mod page;
mod record;
pub mod run;
mod summary;

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::plot::Figure;

pub use figures::{Chapter, README_FIGURES, chapters};
pub use hardware::{CpuCache, Hardware};
pub use page::html;
pub use record::{
    Commit, Curve, DoorCell, FORMAT, Group, Head, Idle, LeftOut, Limit, Load, LoadPoint, Record,
    Sample, Settings, StepTime, Who,
};
pub(crate) use summary::write_goals;
pub use summary::{markdown, write_summary};

/// Writes `report.json`, the plots, `summary.md` and `index.html` into a folder, which is made if
/// it is not there. Plots of an earlier report that this one does not have are removed.
///
/// # Errors
/// A file cannot be written.
pub fn write_files(record: &Record, folder: &Path) -> anyhow::Result<()> {
    let figures: Vec<Figure> = chapters(record)
        .into_iter()
        .flat_map(|chapter| chapter.figures)
        .collect();
    let texts = [
        ("summary.md", markdown(record, ".")),
        ("index.html", html(record)),
    ];
    write_folder(
        folder,
        "report.json",
        record,
        &figures::names(),
        &figures,
        &texts,
    )
}

/// Writes a record, plots and texts. Of the plots that a report may have, only these stay.
pub(crate) fn write_folder(
    folder: &Path,
    name: &str,
    record: &impl serde::Serialize,
    names: &[&str],
    figures: &[Figure],
    texts: &[(&str, String)],
) -> anyhow::Result<()> {
    crate::folder(folder)?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(name, &(serde_json::to_string_pretty(record)? + "\n"))?;
    for path in names.iter().map(|name| folder.join(format!("{name}.svg"))) {
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    for figure in figures {
        write(&format!("{}.svg", figure.name), &figure.svg)?;
    }
    texts.iter().try_for_each(|(name, text)| write(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report that the README shows, with words that have to be escaped.
    fn published() -> Record {
        let json = include_str!("../../../../docs/performance/report.json");
        let mut record = Record::read(json).expect("a report");
        record.head.machine.machine.cpu = "A CPU <of> some & kind".into();
        let why = "there are none <here>";
        record.head.leave_out("verbs", why, true);
        record
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let record = published();
        let folder = tempfile::tempdir().expect("a directory");
        write_files(&record, folder.path()).expect("files");
        let json = fs::read_to_string(folder.path().join("report.json")).expect("a file");
        assert_eq!(Record::read(&json).expect("a report"), record);
        for name in figures::names() {
            let svg = fs::read_to_string(folder.path().join(format!("{name}.svg")));
            assert!(svg.expect(name).starts_with("<svg"), "{name}");
        }
        // One without data has no plots, and leaves none of the other's.
        write_files(&Record::default(), folder.path()).expect("files");
        let names = fs::read_dir(folder.path()).expect("a directory");
        assert_eq!(names.count(), 3);
    }

    #[test]
    fn the_page_is_well_formed_and_whole() {
        for record in [published(), Record::default()] {
            let page = html(&record);
            let document = roxmltree::ParsingOptions {
                allow_dtd: true,
                ..Default::default()
            };
            // HTML writes it in small letters, XML does not.
            let page = page.replacen("<!doctype", "<!DOCTYPE", 1);
            let document = roxmltree::Document::parse_with_options(&page, document);
            let document = document.unwrap_or_else(|error| panic!("{error}: {page}"));
            let mut ids: Vec<_> = document
                .descendants()
                .filter_map(|node| node.attribute("id"))
                .collect();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), all, "names differ");
            let outside = document.descendants().find(|node| {
                ["src", "href"]
                    .iter()
                    .any(|name| node.attribute(*name).is_some())
            });
            assert_eq!(outside, None, "nothing comes from elsewhere");
        }
    }

    #[test]
    fn the_tables_have_every_goal() {
        let record = published();
        let mut text = Vec::new();
        write_summary(&record, &mut text).expect("a vector takes all");
        let text = String::from_utf8(text).expect("text");
        let markdown = markdown(&record, "docs/performance");
        for goal in crate::goals::GOALS {
            assert!(text.contains(goal.title) && markdown.contains(goal.title));
        }
        assert!(markdown.contains("](docs/performance/against-memcached.svg)"));
    }
}
