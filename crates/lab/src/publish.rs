//! A report's table and plots in the README.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

const BEGIN: &str = "<!-- performance: begin -->\n";
const END: &str = "<!-- performance: end -->";
/// Where the README's figures are, seen from it.
const FOLDER: &str = "docs/performance";

/// Copies a report's data and those of its plots that its summary shows, and puts the summary into
/// the README.
///
/// # Errors
/// A file cannot be read or written.
pub fn publish(report: &Path) -> anyhow::Result<()> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| {
            let path = path.display();
            format!("cannot read {path}; is it a folder of `cargo lab report`?")
        })
    };
    let summary = read(&report.join("summary.md"))?;
    // All is read before anything is written: `report` may be the folder itself.
    let mut files = vec![(
        "report.json".to_string(),
        read(&report.join("report.json"))?,
    )];
    for name in pictures(&summary) {
        files.push((name.to_string(), read(&report.join(name))?));
    }
    let readme = root.join("README.md");
    let text = replaced(
        &read(&readme)?,
        &summary.replace("./", &format!("{FOLDER}/")),
    )?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    fs::write(&readme, text).context("writing README.md")?;
    eprintln!("README.md shows the report; {FOLDER} has its data");
    Ok(())
}

/// The files of `![...](./name.svg)`.
fn pictures(summary: &str) -> impl Iterator<Item = &str> {
    let lines = summary.lines().filter(|line| line.starts_with("!["));
    lines.filter_map(|line| line.split_once("](./")?.1.strip_suffix(')'))
}

/// The README with another text between its marks.
fn replaced(readme: &str, summary: &str) -> anyhow::Result<String> {
    let begin = readme.find(BEGIN).map(|at| at + BEGIN.len());
    let end = readme.find(END);
    let (Some(begin), Some(end)) = (begin, end) else {
        anyhow::bail!("README.md has lost its marks, {} and {END}", BEGIN.trim());
    };
    ensure!(begin <= end, "the README's marks are in the wrong order");
    Ok(format!(
        "{}\n{summary}\n{}",
        &readme[..begin],
        &readme[end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_stands_between_the_marks() {
        let readme = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let new = replaced(&readme, "| a |\n").expect("marks");
        assert_eq!(new, format!("before\n{BEGIN}\n| a |\n\n{END}\nafter\n"));
        // Once more gives the same.
        assert_eq!(replaced(&new, "| a |\n").expect("marks"), new);
        assert!(replaced("no marks", "x").is_err());
    }

    #[test]
    fn pictures_are_found() {
        let summary = "| a |\n\n![one two](./one-two.svg)\n\n![x](https://elsewhere/y.svg)\n";
        assert_eq!(pictures(summary).collect::<Vec<_>>(), ["one-two.svg"]);
    }
}
