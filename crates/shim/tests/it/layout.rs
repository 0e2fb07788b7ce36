//! Structures are laid out as a C compiler lays out those of `infiniband/verbs.h`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use vervain_verbs::abi::{LAYOUTS, Layout};

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// A structure's name in C: words, each of which begins with a capital letter here.
fn in_c(name: &str) -> String {
    let mut words = String::new();
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    match words.as_str() {
        "verbs_context" => words,
        _ => format!("ibv_{words}"),
    }
}

/// A field's name in C; none for those that stand for several, or that C has no name for.
fn field_in_c(layout: &Layout, field: &str) -> Option<String> {
    match (layout.name, field) {
        ("VerbsContext", "private") => Some("priv".into()),
        ("SendWr", "bind_mw") => Some("bind_mw".into()),
        ("ContextOps" | "VerbsContext", field) if field.starts_with('_') => None,
        (_, field) => Some(field.into()),
    }
}

/// What is to be asked of C about a structure, and what is the answer here.
fn facts(layout: &Layout) -> Vec<(String, usize)> {
    let name = in_c(layout.name);
    let mut facts = vec![(format!("sizeof(struct {name})"), layout.len)];
    for (field, at) in layout.fields {
        if let Some(field) = field_in_c(layout, field) {
            facts.push((format!("offsetof(struct {name}, {field})"), *at));
        }
    }
    facts
}

#[test]
fn structures_are_those_of_the_header() {
    if !Path::new(HEADER).exists() {
        assert!(
            std::env::var_os("VERVAIN_TEST_PEERS").is_none(),
            "{HEADER} is missing: install libibverbs-dev"
        );
        eprintln!("left out: {HEADER} is missing (libibverbs-dev)");
        return;
    }
    // In C the parts of a union are structures without names.
    let unnamed = ["RemoteRdma", "RemoteAtomic", "RemoteUd"];
    let facts: BTreeMap<String, usize> = LAYOUTS
        .iter()
        .filter(|layout| !unnamed.contains(&layout.name))
        .flat_map(facts)
        .collect();
    let mut program = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\nint main(void) {\n",
    );
    for question in facts.keys() {
        writeln!(program, "printf(\"%zu\\n\", (size_t)({question}));").expect("a string");
    }
    program.push_str("return 0; }\n");
    let dir = tempfile::tempdir().expect("a directory");
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, program).expect("written");
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output();
    let compiled = compiled.expect("cc, of gcc");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let answers = Command::new(&binary).output().expect("it runs");
    let answers = String::from_utf8(answers.stdout).expect("numbers");
    let answers: Vec<usize> = answers
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(answers.len(), facts.len());
    let mut wrong = Vec::new();
    for ((question, here), there) in facts.iter().zip(answers) {
        if *here != there {
            wrong.push(format!("{question}: {here} here, {there} in C"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
