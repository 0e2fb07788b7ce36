//! Arrows point down: which crate of the workspace may know which, and which layer of the software
//! NIC and of libibverbs' stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may depend on, as ARCHITECTURE.md draws it. Tests and benches may use more.
const ARROWS: &str = "
    verbs:
    conformance: verbs files
    engine:
    files:
    rt:
    block: rt
    nic-soft: verbs
    nfs: rt files
    shim: verbs nic-soft
    cache: verbs engine
    checker: cache
    memcache: rt engine
    nebula: meta rt block
    filelayer: rt block nebula
    store: rt block engine
    meta: rt block
    index: files meta rt
    bench: verbs nic-soft rt block engine cache memcache store
    lab: verbs rt block cache store bench vervain gates simulation shim programs nfs
    fs: index filelayer nebula meta files rt block
    vervain: verbs nic-soft rt block engine cache checker memcache store bench fs files nfs
    gates: verbs nic-soft rt block engine cache memcache store files nfs
    fuzz: verbs conformance nfs nic-soft rt block engine cache checker memcache store lab vervain
    sim: verbs conformance rt block
    simulation: verbs engine conformance rt sim cache checker
    vervain-test:
    programs: vervain-test
    guest:
    xdrgen:
    xtask: programs xdrgen
";

/// The same by crate.
fn arrows() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let lines = ARROWS.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, down)| (name.trim(), down.split_whitespace().collect()))
        .collect()
}

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
    let arrows = arrows();
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
    let below = arrows();
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

/// The folders of the software NIC, the lowest first, as docs/design/nic-soft.md draws them: a file
/// imports from its own and from those before it. Tests may use more.
const NIC: [&str; 9] = [
    "sync", "shared", "contact", "memory", "path", "queue", "recv", "send", "device",
];

/// The same of libibverbs' stand-in, as docs/design/shim.md draws them.
const SHIM: [&str; 10] = [
    "abi",
    "process",
    "check",
    "around",
    "cm",
    "context",
    "memory",
    "queues",
    "device",
    "discovery",
];

/// A layer of it that is one state machine, the connection manager: its files are parts of one type's
/// implementation, and know each other.
const ONE_MACHINE: &str = "cm";

/// The crates with layers, by their folders.
const LAYERED: [(&str, &[&str]); 2] = [("nic-soft", &NIC), ("shim", &SHIM)];

/// The lines of a source that are neither comments nor tests.
fn code_of(source: &str) -> Vec<&str> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let is_no_test = |line: &&str| !(line.starts_with("#[cfg(") && line.contains("test"));
    let lines = source.lines().take_while(is_no_test);
    lines.filter(is_code).collect()
}

/// What the source of a module imports that is neither of its layer nor of one below. A module's
/// path begins with its layer.
fn imports_from_above(layers: &[&str], module: &[&str], source: &str) -> Vec<String> {
    let own = layers.iter().position(|layer| *layer == module[0]);
    let below = &layers[..=own.expect("a layer")];
    let mut above = Vec::new();
    for line in code_of(source) {
        for root in ["crate::", "super::"] {
            for (at, _) in line.match_indices(root) {
                let before = line[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                    continue; // The rest of a longer path, which was looked at already.
                }
                let mut rest = &line[at..];
                let mut left = if root == "crate::" { 0 } else { module.len() };
                rest = rest.strip_prefix("crate::").unwrap_or(rest);
                while let Some(outer) = rest.strip_prefix("super::") {
                    (rest, left) = (outer, left.saturating_sub(1));
                }
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
                let name = name.take(1).collect::<String>();
                if left == 0 && !below.contains(&name.as_str()) {
                    above.push(line.trim().to_owned());
                }
            }
        }
    }
    above
}

/// The modules of its own layer that a module's source imports: what lies in a folder of its own
/// counts as the module that the folder is named after.
fn imports_within(module: &[&str], source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let code: String = code_of(source).join("\n");
    let mut roots = vec![format!("crate::{}::", module[0])];
    if module.len() == 2 {
        roots.push("super::".into());
    }
    for root in roots {
        for (at, _) in code.match_indices(&root) {
            let rest = &code[at + root.len()..];
            let group = rest
                .strip_prefix('{')
                .and_then(|rest| rest.split('}').next());
            let first = |path: &str| {
                let name = path
                    .trim()
                    .split(|c: char| !c.is_alphanumeric() && c != '_');
                name.take(1).collect::<String>()
            };
            match group {
                Some(group) => names.extend(group.split(',').map(first)),
                None => names.extend([first(rest)]),
            }
        }
    }
    names.remove(module[1]);
    names
}

/// The modules that are left when those that know none of the others are taken away, again and again,
/// and then those that none of the others knows.
fn circle(mut below: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    loop {
        let knows_none = |own: &BTreeSet<String>| own.iter().all(|one| !below.contains_key(one));
        let is_known = |name: &String| below.values().any(|own| own.contains(name));
        let outside =
            |(name, own): &(&String, &BTreeSet<String>)| knows_none(own) || !is_known(name);
        let Some(name) = below.iter().find(outside).map(|(name, _)| name.clone()) else {
            return below.into_keys().collect();
        };
        below.remove(&name);
    }
}

/// Calls `look` with each module below a folder and its source.
fn modules(folder: &Path, path: &mut Vec<String>, look: &mut impl FnMut(&[&str], &str)) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry").path();
        let name = entry.file_stem().expect("a name").to_string_lossy();
        if name == "tests" {
            continue;
        }
        if entry.is_dir() {
            path.push(name.into_owned());
            modules(&entry, path, look);
            path.pop();
        } else if entry.extension().is_some_and(|end| end == "rs") {
            let mut module: Vec<&str> = path.iter().map(String::as_str).collect();
            module.extend((name != "mod").then_some(&*name));
            look(&module, &std::fs::read_to_string(&entry).expect("a source"));
        }
    }
}

/// Calls `look` with each module of a crate and its source, but for the crate's root.
fn modules_of(name: &str, look: &mut impl FnMut(&[&str], &str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}/src"));
    modules(&root, &mut Vec::new(), &mut |module, source| {
        if !matches!(module, [] | ["lib"]) {
            look(module, source);
        }
    });
}

#[test]
fn layers_look_down() {
    for (name, layers) in LAYERED {
        let mut seen = BTreeSet::new();
        let mut wrong = Vec::new();
        modules_of(name, &mut |module, source| {
            if module.len() > 1 {
                seen.insert(module[0].to_owned());
            }
            if layers.contains(&module[0]) {
                let above = imports_from_above(layers, module, source);
                wrong.extend(above.into_iter().map(|line| (module.join("::"), line)));
            }
        });
        let drawn: BTreeSet<String> = layers.iter().map(|layer| (*layer).to_owned()).collect();
        assert_eq!(seen, drawn, "each folder of {name} is a layer");
        assert!(
            wrong.is_empty(),
            "imports of {name} from layers above: {wrong:#?}"
        );
    }
}

#[test]
fn the_modules_of_a_layer_know_each_other_in_no_circle() {
    for (name, _) in LAYERED {
        let mut layers: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        modules_of(name, &mut |module, source| {
            if let [layer, name, ..] = module
                && *layer != ONE_MACHINE
            {
                let layer = layers.entry((*layer).to_owned()).or_default();
                let below = layer.entry((*name).to_owned()).or_default();
                below.extend(imports_within(module, source));
            }
        });
        let circles = layers
            .into_iter()
            .map(|(layer, below)| (layer, circle(below)));
        let found: BTreeMap<_, _> = circles.filter(|(_, circle)| !circle.is_empty()).collect();
        assert!(found.is_empty(), "circles of modules of {name}: {found:#?}");
    }
}

#[test]
fn a_circle_is_found() {
    let modules = |sources: &[(&str, &str)]| {
        let below = sources.iter().map(|(name, source)| {
            let imports = imports_within(&["path", name], source);
            ((*name).to_owned(), imports)
        });
        circle(below.collect())
    };
    let link = ("link", "use crate::path::{remote, wire::Packet};");
    let remote = ("remote", "use crate::memory::mr;");
    let wire = ("wire", "use super::remote::Place;");
    assert!(modules(&[link, remote, wire]).is_empty());
    let wire = ("wire", "use super::link::Link;");
    let circle = modules(&[link, remote, wire]);
    assert_eq!(circle, ["link", "wire"].map(String::from).into());
    let wire = ("wire", "#[cfg(test)]\nuse super::link::Link;");
    assert!(modules(&[link, remote, wire]).is_empty());
}

#[test]
fn an_import_from_a_layer_above_is_found() {
    let found = |module: &[&str], source| !imports_from_above(&NIC, module, source).is_empty();
    let link = ["path", "link"];
    for below in [
        "use crate::path::remote::Place;",
        "use crate::sync::light_barrier;",
        "use super::remote;",
        "pub(crate) fn f() {}",
        "// As crate::device does.",
        "#[cfg(test)]\nmod tests {\n    use crate::SoftNic;\n}",
    ] {
        assert!(!found(&link, below), "{below}");
    }
    for above in [
        "use crate::queue::qp::QpShared;",
        "use crate::SoftNic;",
        "use super::super::send::queue;",
        "fn f(adapter: &crate::device::nic::SoftNic) {}",
    ] {
        assert!(found(&link, above), "{above}");
    }
    assert!(!found(
        &["send", "queue", "kept"],
        "use super::super::dests;"
    ));
    assert!(found(
        &["send", "queue", "kept"],
        "use super::super::super::device;"
    ));
}
