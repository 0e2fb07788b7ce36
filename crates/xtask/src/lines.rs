//! How large the harness is, and the product: lines of Rust that are neither blank nor comments.

use std::path::Path;

use anyhow::Context;

/// What measures, proves and checks; everything else below `crates` is the product and its tests.
const HARNESS: [&str; 9] = [
    "crates/bench",
    "crates/lab",
    "crates/gates",
    "crates/simulation",
    "crates/checker",
    "crates/vervain/src/measure",
    "crates/vervain/src/soak",
    "crates/xtask",
    "fuzz",
];

/// Prints them.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut harness = 0;
    for folder in HARNESS {
        let lines = count(&root.join(folder))?;
        harness += lines;
        println!("{folder:<28}{lines:>8}");
    }
    let all = count(&root.join("crates"))? + count(&root.join("fuzz"))?;
    println!("{:<28}{harness:>8}", "harness");
    println!("{:<28}{:>8}", "product and its tests", all - harness);
    Ok(())
}

/// The lines of all files below a folder, its builds left out.
fn count(path: &Path) -> anyhow::Result<usize> {
    if path.is_dir() {
        let inside = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let paths = inside.map(|entry| Ok(entry?.path()));
        let paths = paths.collect::<std::io::Result<Vec<_>>>()?;
        let sources = paths.iter().filter(|path| !path.ends_with("target"));
        return sources.map(|path| count(path)).sum();
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok(0);
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.lines().filter(|line| is_code(line)).count())
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_are_no_code() {
        let lines = [
            "",
            "  ",
            "// a",
            "    /// b",
            "//! c",
            "let a = 1; // d",
            "}",
        ];
        assert_eq!(lines.iter().filter(|line| is_code(line)).count(), 2);
    }
}
