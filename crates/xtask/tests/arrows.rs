//! Arrows point down: which crate of the workspace may know which.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may depend on, as ARCHITECTURE.md draws it. Tests and benches may use more.
const ARROWS: [(&str, &[&str]); 15] = [
    ("verbs", &[]),
    ("conformance", &["verbs"]),
    ("engine", &[]),
    ("rt", &[]),
    ("block", &["rt"]),
    ("nic-soft", &["verbs"]),
    ("cache", &["verbs", "engine"]),
    ("memcache", &["rt", "engine"]),
    ("store", &["rt", "block", "engine"]),
    (
        "bench",
        &[
            "verbs", "nic-soft", "rt", "block", "engine", "cache", "memcache", "store",
        ],
    ),
    (
        "vervain",
        &[
            "verbs", "nic-soft", "rt", "block", "engine", "cache", "memcache", "store", "bench",
        ],
    ),
    (
        "gates",
        &[
            "verbs", "nic-soft", "rt", "block", "engine", "cache", "memcache", "store",
        ],
    ),
    (
        "fuzz",
        &[
            "verbs",
            "conformance",
            "nic-soft",
            "rt",
            "block",
            "engine",
            "cache",
            "memcache",
            "store",
            "bench",
            "vervain",
            "gates",
        ],
    ),
    ("simulation", &["verbs", "conformance", "cache"]),
    ("xtask", &[]),
];

#[test]
fn every_dependency_inside_the_workspace_points_down() {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let members: BTreeSet<String> = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let arrows: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .iter()
        .map(|(name, down)| (*name, down.iter().copied().collect()))
        .collect();
    let drawn: BTreeSet<String> = arrows.keys().map(|name| (*name).to_string()).collect();
    assert_eq!(
        members, drawn,
        "every crate has its place in the drawing, and no other"
    );
    for package in &metadata.packages {
        let allowed = &arrows[package.name.as_str()];
        for dependency in &package.dependencies {
            let inside = members.contains(&dependency.name);
            if inside && dependency.kind == DependencyKind::Normal {
                assert!(
                    allowed.contains(dependency.name.as_str()),
                    "{} must not know {}",
                    package.name,
                    dependency.name,
                );
            }
        }
    }
}

#[test]
fn the_drawing_has_no_circles() {
    let below: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    // Taking away what has nothing below it, again and again, leaves nothing.
    let mut left: BTreeSet<&str> = below.keys().copied().collect();
    while let Some(bottom) = left
        .iter()
        .copied()
        .find(|name| below[name].iter().all(|down| !left.contains(down)))
    {
        left.remove(bottom);
    }
    assert!(left.is_empty(), "a circle among {left:?}");
}
