//! Every key of a store, out and in again: as `set` commands of memcached's protocol, which any
//! server of it takes too.

use std::io::{BufRead, BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::json;
use store::{Attributes, Durability, Options, Visited};

use super::open;

/// The longest key that the protocol knows.
const KEY_MAX: usize = 250;

/// Values of more than this many bytes are no values, but something else than an export.
const VALUE_MAX: usize = 1 << 30;

pub(super) fn export(path: &Path) -> anyhow::Result<bool> {
    let store = open(path, Options::default())?;
    let mut out = BufWriter::new(bench::print::output());
    let mut written = Ok(());
    let mut unfit = 0_u64;
    store.for_each(|visited| {
        let fits = |byte: &u8| byte.is_ascii_graphic() || *byte >= 0x80;
        let key = visited.key;
        if key.is_empty() || key.len() > KEY_MAX || !key.iter().all(fits) {
            unfit += 1;
            return ControlFlow::Continue(());
        }
        written = write_item(&mut out, &visited);
        if written.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    written.and_then(|()| out.flush())?;
    store.close()?;
    if unfit > 0 {
        bail!("{unfit} keys are left out: memcached's protocol has no way to write them");
    }
    Ok(true)
}

fn write_item(out: &mut impl Write, item: &Visited<'_>) -> std::io::Result<()> {
    out.write_all(b"set ")?;
    out.write_all(item.key)?;
    write!(
        out,
        " {} {} {}\r\n",
        item.flags,
        item.expiry,
        item.value.len()
    )?;
    out.write_all(item.value)?;
    out.write_all(b"\r\n")
}

pub(super) fn import(path: &Path, as_json: bool) -> anyhow::Result<bool> {
    let mut options = Options::default();
    // Closing makes all of it durable, at once.
    options.durability = Durability::Process;
    let store = open(path, options)?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    let mut count = 0_u64;
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).context("reading")? == 0 {
            break;
        }
        let number = count + 1;
        let (key, attributes, len) = parse(&line)
            .with_context(|| format!("item {number} does not begin with a `set` command"))?;
        let mut value = vec![0; len + 2];
        input
            .read_exact(&mut value)
            .with_context(|| format!("item {number} ends too early"))?;
        if !value.ends_with(b"\r\n") {
            bail!("item {number} is not of the length that it says");
        }
        store.put_with(key, &value[..len], attributes)?;
        count += 1;
    }
    store.close()?;
    let mut out = bench::print::output();
    if as_json {
        writeln!(out, "{}", json!({"stored": count}))?;
    } else {
        writeln!(out, "{count} keys stored")?;
    }
    Ok(true)
}

/// The key of a `set` command, what belongs to it, and the value's length.
fn parse(line: &[u8]) -> Option<(&[u8], Attributes, usize)> {
    let line = line.strip_suffix(b"\r\n")?;
    let mut words = line.split(|&byte| byte == b' ');
    if words.next()? != b"set" {
        return None;
    }
    let key = words.next()?;
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let flags = u32::try_from(number()?).ok()?;
    let expiry = u32::try_from(number()?).ok()?;
    let len = usize::try_from(number()?)
        .ok()
        .filter(|&len| len <= VALUE_MAX)?;
    if words.next().is_some() || key.is_empty() {
        return None;
    }
    Some((key, Attributes { flags, expiry }, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_set_commands_are_read() {
        let attributes = Attributes {
            flags: 7,
            expiry: 9,
        };
        assert_eq!(parse(b"set k 7 9 3\r\n"), Some((&b"k"[..], attributes, 3)));
        for line in [
            "get k\r\n",
            "set k 7 9 3\n",
            "set k 7 9\r\n",
            "set k 7 9 3 4\r\n",
            "set  7 9 3\r\n",
            "set k -1 9 3\r\n",
            "set k 7 9 99999999999\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
