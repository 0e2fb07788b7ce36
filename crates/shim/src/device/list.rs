//! The list of devices, which has one.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::abi;
use crate::memory::born;
use crate::process::complain;
use crate::process::settings::{self, DEVICE};

/// The one device. A program's pointers to it stay good for ever. Behind it is nothing, where drivers' libraries look for what their
/// own devices have.
#[repr(C)]
struct TheDevice(abi::Device, [u64; 32]);

// SAFETY: nobody changes it, and it points to nothing.
unsafe impl Send for TheDevice {}
// SAFETY: as above.
unsafe impl Sync for TheDevice {}

static THE_DEVICE: OnceLock<TheDevice> = OnceLock::new();

/// A string in a field, cut if need be, with a zero at its end.
pub(super) fn field<const LEN: usize>(text: &str) -> [c_char; LEN] {
    let mut field = [0; LEN];
    for (to, byte) in field[..LEN - 1].iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
    field
}

fn the_device() -> *mut abi::Device {
    let device = THE_DEVICE.get_or_init(|| {
        let device = abi::Device {
            _ops: [std::ptr::null_mut(); 2],
            node_type: abi::NODE_CA,
            transport_type: abi::TRANSPORT_IB,
            name: field(DEVICE),
            dev_name: field("uverbs0"),
            dev_path: field("/sys/class/infiniband_verbs/uverbs0"),
            ibdev_path: field(&format!("/sys/class/infiniband/{DEVICE}")),
        };
        TheDevice(device, [0; 32])
    });
    (&raw const device.0).cast_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut abi::Device {
    born::wake(settings::shares_memory().unwrap_or_else(|why| {
        complain("memory is not shared", &why);
        false
    }));
    let list = Box::new([the_device(), std::ptr::null_mut()]);
    if !num_devices.is_null() {
        // SAFETY: the caller's.
        unsafe { *num_devices = 1 };
    }
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut abi::Device) {
    // SAFETY: made by `ibv_get_device_list`.
    drop(unsafe { Box::from_raw(list.cast::<[*mut abi::Device; 2]>()) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: ours.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut abi::Device) -> c_int {
    // As for devices that the kernel does not number.
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut abi::Device) -> u64 {
    settings::options().map_or(0, |options| options.gid.low().0.to_be())
}
