//! Where things are: the run directory and the NIC's address. The only reader of the environment.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use nic_soft::{SoftNic, SoftOptions};
use verbs::Gid;
use verbs::decorate::{FaultPlan, Faulty, Printer, Traced};
use verbs::nic::Nic;
use verbs::typed::Context;

use super::NicFlags;

/// An address of the software NIC: an IP address, or any name.
///
/// A name becomes an address of its own in fd00::/8, the same on every machine.
pub(crate) fn parse_gid(text: &str) -> Result<Gid, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(gid_of(address));
    }
    if text.is_empty() || text.contains(['/', '\0', ' ']) {
        return Err(format!("`{text}` is neither an IP address nor a name"));
    }
    let mut gid = [0; 16];
    gid[0] = 0xfd;
    for (half, seed) in [(1..8, 1u64), (8..16, 2)] {
        // FNV-1a: what matters is that it never changes.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
        let len = half.len();
        gid[half].copy_from_slice(&hash.to_be_bytes()[8 - len..]);
    }
    Ok(Gid(gid))
}

fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => Gid::from_ipv4(address),
        IpAddr::V6(address) => Gid(address.octets()),
    }
}

/// A host's address, as programs know it: they resolve names themselves, and would look for another one.
pub(crate) fn parse_host_address(text: &str) -> Result<Gid, String> {
    let address = text.parse::<IpAddr>();
    let address =
        address.map_err(|_| format!("`{text}` is no IP address; write 10.0.0.1 or fd00::1"))?;
    match address.is_unspecified() || address.to_canonical().is_multicast() {
        true => Err(format!("`{text}` is not the address of a host")),
        false => Ok(gid_of(address)),
    }
}

/// The run directory: as given, else in the user's runtime directory, else in /tmp.
pub(crate) fn run_dir_of(flags: &NicFlags) -> PathBuf {
    run_dir(flags.run_dir.as_deref())
}

/// As [`run_dir_of`], for those with no other flags of a NIC.
pub(crate) fn run_dir(given: Option<&Path>) -> PathBuf {
    if let Some(given) = given {
        return given.to_path_buf();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("vervain"),
        _ => {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("vervain-{uid}"))
        }
    }
}

/// A path as a line shows it, no two alike: what would end the line or tell a terminal something is
/// escaped, bytes that are no UTF-8, and backslashes.
pub(crate) fn on_a_line(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        shown.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    shown
}

/// The same for all paths to a run directory, on a line.
pub(crate) fn told_run_dir(path: &Path) -> String {
    let whole = path.canonicalize().or_else(|_| std::path::absolute(path));
    on_a_line(&whole.unwrap_or_else(|_| path.to_path_buf()))
}

/// The software NIC's options.
fn nic_options(flags: &NicFlags) -> SoftOptions {
    let localhost = Gid::from_ipv4(Ipv4Addr::LOCALHOST);
    let options = SoftOptions::new(run_dir_of(flags)).gid(flags.gid.unwrap_or(localhost));
    match flags.contact_timeout {
        Some(timeout) => options.contact_timeout(timeout),
        None => options,
    }
}

/// The software NIC, opened.
pub struct OpenedNic {
    /// How it was opened.
    pub options: SoftOptions,
    /// The NIC itself, for its counts.
    pub soft: Arc<SoftNic>,
    /// The NIC with what was put around it.
    pub context: Context,
}

/// Opens the software NIC, with what is to be put around it.
///
/// # Errors
/// The NIC's.
pub fn open_nic(flags: &NicFlags) -> anyhow::Result<OpenedNic> {
    let options = nic_options(flags);
    let soft = open_soft(&options)?;
    let mut nic: Arc<dyn Nic> = Arc::<SoftNic>::clone(&soft);
    if let Some(ppm) = flags.nic_loss {
        let plan = FaultPlan {
            seed: fastrand::u64(..),
            ud_drop_ppm: ppm,
            ud_duplicate_ppm: ppm,
            ud_delay_ppm: ppm,
            uc_drop_ppm: ppm,
            ..FaultPlan::default()
        };
        nic = Arc::new(Faulty::new(nic, plan).context("putting faults around the NIC")?);
    }
    if flags.nic_trace {
        nic = Arc::new(Traced::new(nic, Printer::new(std::io::stderr())));
    }
    Ok(OpenedNic {
        options,
        soft,
        context: Context::new(nic),
    })
}

fn open_soft(options: &SoftOptions) -> anyhow::Result<Arc<SoftNic>> {
    SoftNic::open(options).with_context(|| {
        format!(
            "cannot open the software NIC in {}",
            options.run_dir.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn no_two_paths_are_shown_alike() {
        for (path, shown) in [
            (&b"/tmp/r\xc3\xbcn"[..], "/tmp/r\u{fc}n"),
            (b"/a\nb", r"/a\nb"),
            (br"/a\nb", r"/a\\nb"),
            (b"/\xfe", r"/\xfe"),
            (b"/\xff", r"/\xff"),
            (br"/\xff", r"/\\xff"),
            ("/\u{fffd}".as_bytes(), "/\u{fffd}"),
        ] {
            assert_eq!(on_a_line(Path::new(OsStr::from_bytes(path))), shown);
        }
    }

    #[test]
    fn addresses_and_names_become_gids() {
        let v4 = parse_gid("10.0.0.7").expect("an address");
        assert_eq!(v4, Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 7)));
        assert_eq!(
            parse_gid("fd00::1").expect("an address").to_string(),
            "fd00::1"
        );
        let (one, two) = (
            parse_gid("one").expect("a name"),
            parse_gid("two").expect("a name"),
        );
        assert_ne!(one, two);
        assert_eq!(one.0[0], 0xfd);
        assert!(parse_gid("").is_err() && parse_gid("a/b").is_err());
    }
}
