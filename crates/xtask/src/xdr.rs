//! `cargo x xdr`: the types of NFS, from the RFCs' descriptions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use xdrgen::Schema;

/// The descriptions, in their order: later ones add to earlier ones.
const SOURCES: [&str; 4] = ["rpc.x", "rfc7863.x", "rfc8276.x", "additions.x"];

const HEAD: &str = "\
//! Written by `cargo x xdr` from the RFCs' descriptions in `x/`, whose notices apply: Copyright (c)
//! 2016, 2017 IETF Trust and the persons identified as the authors. All rights reserved.

use super::Bitmap4;
use crate::rpc::AuthSys;
use crate::xdr::{Chain, Decode, Decoder, Encode, Encoder, Opaque, XdrError};

";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nfs/src/wire")
}

/// Writes the file.
pub(crate) fn run() -> anyhow::Result<()> {
    let file = folder().join("generated.rs");
    fs::write(&file, generate()?).with_context(|| format!("cannot write {}", file.display()))
}

fn generate() -> anyhow::Result<String> {
    let read = |name| {
        let file = folder().join("x").join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let sources = SOURCES.map(read);
    let sources = sources
        .into_iter()
        .collect::<anyhow::Result<Vec<String>>>()?;
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let schema = Schema::parse(&sources).context("the descriptions of NFS")?;
    Ok(format!("{HEAD}{}", xdrgen::rust(&schema)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_would_be_written() {
        let file = folder().join("generated.rs");
        let there = fs::read_to_string(file).expect("the generated file");
        let would = generate().expect("descriptions");
        assert!(there == would, "run `cargo x xdr`");
    }
}
