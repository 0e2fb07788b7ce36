//! What the environment says; `vervain run` sets it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use nic_soft::SoftOptions;
use verbs::Gid;
use verbs::decorate::FaultPlan;

/// Where programs meet.
const RUN_DIR: &str = "VERVAIN_RUN_DIR";
/// The device's address.
const GID: &str = "VERVAIN_GID";

/// What goes wrong on purpose.
const FAULTS: &str = "VERVAIN_FAULTS";
/// The file that everything is traced in.
const TRACE: &str = "VERVAIN_TRACE";
/// Has misuse of verbs found. Names a file besides standard error, or none with `-`.
const CHECK: &str = "VERVAIN_CHECK";
/// What a program exits with that has misused verbs.
const CHECK_EXIT: &str = "VERVAIN_CHECK_EXIT";
/// Says which memory is born shared.
const SHARE: &str = "VERVAIN_SHARE";

/// What the device is called.
pub(crate) const DEVICE: &str = "vervain0";

fn given(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The user's runtime directory, or one in `/tmp`.
pub(crate) fn run_dir() -> PathBuf {
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

/// Whether memory is to be born shared: not with `none`.
pub(crate) fn shares_memory() -> Result<bool, String> {
    match std::env::var(SHARE).as_deref() {
        Err(_) | Ok("" | "pages") => Ok(true),
        Ok("none") => Ok(false),
        Ok(other) => Err(format!("{SHARE}={other}: neither pages nor none")),
    }
}

/// How to open the NIC, with all of its addresses, which the kernel is asked for. One that was chosen is the only one.
pub(crate) fn device_options() -> Result<SoftOptions, String> {
    let options = options()?;
    Ok(match given(GID) {
        Some(_) => options,
        None => options.host_aliases(),
    })
}

/// Where the NIC is, what it is called, and how it behaves.
pub(crate) fn options() -> Result<SoftOptions, String> {
    let mut options = SoftOptions::new(run_dir());
    options.name = DEVICE.into();
    // A program's threads may be storing into its memory while it is registered.
    options.remap = false;
    // Programs end while their peers have completions to poll.
    options.fails_with_peers = false;
    // And once they have polled what they have sent.
    options.datagrams_wait = true;
    match std::env::var(GID) {
        Err(_) => Ok(options),
        Ok(text) => match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Ok(options.gid(Gid::from_ipv4(address))),
            Ok(IpAddr::V6(address)) => Ok(options.gid(Gid(address.octets()))),
            Err(_) => Err(format!("{GID}={text}: not an IP address")),
        },
    }
}

/// What is to go wrong.
pub(crate) fn faults() -> Result<Option<FaultPlan>, String> {
    let Some(text) = given(FAULTS) else {
        return Ok(None);
    };
    let plan = text.to_string_lossy().parse();
    plan.map(Some).map_err(|why| format!("{FAULTS}: {why}"))
}

/// Where to trace.
pub(crate) fn trace() -> Option<PathBuf> {
    given(TRACE).map(PathBuf::from)
}

/// How to look for misuse.
pub(crate) struct CheckSettings {
    /// What findings are written to, besides standard error.
    pub(crate) file: Option<PathBuf>,
    /// What the process exits with after errors.
    pub(crate) exit_code: i32,
}

/// Whether to look for misuse, and how.
pub(crate) fn check() -> Result<Option<CheckSettings>, String> {
    let Some(file) = given(CHECK) else {
        return Ok(None);
    };
    let exit_code = match given(CHECK_EXIT) {
        None => 99,
        Some(text) => {
            let text = text.to_string_lossy();
            let code = text
                .parse::<u8>()
                .map_err(|_| format!("{CHECK_EXIT}={text}: no exit code"))?;
            code.into()
        }
    };
    let file = (file != "-").then(|| file.into());
    Ok(Some(CheckSettings { file, exit_code }))
}
