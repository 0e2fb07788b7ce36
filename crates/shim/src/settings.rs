//! What the environment says; `vervain run` sets it.

use std::net::IpAddr;
use std::path::PathBuf;

use nic_soft::SoftOptions;
use verbs::Gid;

/// Where programs meet.
const RUN_DIR: &str = "VERVAIN_RUN_DIR";
/// The device's address.
const GID: &str = "VERVAIN_GID";

/// What the device is called.
pub(crate) const DEVICE: &str = "vervain0";

/// The user's runtime directory, or one in `/tmp`.
fn run_dir() -> PathBuf {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = given(RUN_DIR) {
        return dir.into();
    }
    match given("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("vervain"),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("vervain-{uid}"))
        }
    }
}

/// How to open the NIC.
pub(crate) fn options() -> Result<SoftOptions, String> {
    let mut options = SoftOptions::new(run_dir());
    options.name = DEVICE.into();
    // A program's threads may be storing into its memory while it is registered.
    options.remap = false;
    match std::env::var(GID) {
        Err(_) => Ok(options),
        Ok(text) => match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Ok(options.gid(Gid::from_ipv4(address))),
            Ok(IpAddr::V6(address)) => Ok(options.gid(Gid(address.octets()))),
            Err(_) => Err(format!("{GID}={text}: not an IP address")),
        },
    }
}
