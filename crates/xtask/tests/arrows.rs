//! Arrows point down: which crate of the workspace may know which.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may depend on, as ARCHITECTURE.md draws it. Tests and benches may use more.
const ARROWS: [(&str, &[&str]); 17] = [
    ("verbs", &[]),
    ("conformance", &["verbs"]),
    ("engine", &[]),
    ("rt", &[]),
    ("block", &["rt"]),
    ("nic-soft", &["verbs"]),
    ("cache", &["verbs", "engine"]),
    ("checker", &["cache"]),
    ("memcache", &["rt", "engine"]),
    ("store", &["rt", "block", "engine"]),
    (
        "bench",
        &[
            "verbs", "nic-soft", "rt", "block", "engine", "cache", "memcache", "store",
        ],
    ),
    (
        "lab",
        &[
            "verbs",
            "rt",
            "block",
            "cache",
            "store",
            "bench",
            "vervain",
            "gates",
            "simulation",
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
            "checker",
            "memcache",
            "store",
            "lab",
            "vervain",
        ],
    ),
    ("simulation", &["verbs", "conformance", "cache", "checker"]),
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

#[test]
fn the_product_carries_no_rival() {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata");
    let resolved = metadata.resolve.expect("resolved dependencies");
    let named = |name: &str| {
        metadata
            .packages
            .iter()
            .find(|package| package.name == name)
    };
    let rival = named("dashmap").expect("the lab compares with it");
    let mut left = vec![named("vervain").expect("the product").id.clone()];
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        assert_ne!(id, rival.id, "the product depends on a rival");
        if !seen.insert(id.clone()) {
            continue;
        }
        let node = resolved.nodes.iter().find(|node| node.id == id);
        let normal = node
            .expect("a node a package")
            .deps
            .iter()
            .filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|kind| kind.kind == DependencyKind::Normal)
            });
        left.extend(normal.map(|dependency| dependency.pkg.clone()));
    }
}
