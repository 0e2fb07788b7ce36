//! What librdmacm asks of libibverbs beside the functions of `infiniband/verbs.h`: the kernel's records as libibverbs' structures
//! (`infiniband/marshall.h`), and files of `/sys`. Its own libibverbs does the same, where there is one.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::abi::{AhAttr, QpAttr, QpCap, SaPathRec};
use crate::discovery::places::Translated;

/// `struct ib_uverbs_ah_attr`, which begins with `struct ib_uverbs_global_route`.
#[derive(Clone, Copy)]
#[repr(C)]
struct KernelAhAttr {
    dgid: [[u8; 8]; 2],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    _reserved: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    _reserved_too: u8,
}

/// `struct ib_uverbs_qp_attr`.
#[repr(C)]
struct KernelQpAttr {
    _mask: u32,
    _qp_state: u32,
    cur_qp_state: c_int,
    path_mtu: c_int,
    path_mig_state: c_int,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: KernelAhAttr,
    alt_ah_attr: KernelAhAttr,
    cap: QpCap,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    _reserved: [u8; 5],
}

/// `struct ib_user_path_rec`.
#[repr(C)]
struct KernelPathRec {
    dgid: [[u8; 8]; 2],
    sgid: [[u8; 8]; 2],
    dlid: u16,
    slid: u16,
    raw_traffic: u32,
    flow_label: u32,
    reversible: u32,
    mtu: u32,
    pkey: u16,
    hop_limit: u8,
    traffic_class: u8,
    numb_path: u8,
    sl: u8,
    mtu_selector: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

// As the kernel has them.
const _: () = assert!(size_of::<KernelAhAttr>() == 32);
const _: () = assert!(size_of::<KernelQpAttr>() == 144);
const _: () = assert!(size_of::<KernelPathRec>() == 64);

/// Copies fields of the same name, one by one: what the kernel's record does not have stays as it was.
macro_rules! copy {
    ($to:expr, $from:expr; $($field:ident),*) => {
        $((*$to).$field = (*$from).$field;)*
    };
}

/// # Safety
/// Both are there, or room for one.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ibv_copy_ah_attr_from_kern(to: *mut AhAttr, from: *const KernelAhAttr) {
    // SAFETY: the caller's promise.
    unsafe {
        (*to).grh.dgid = (*from).dgid.map(u64::from_ne_bytes);
        copy!(&raw mut (*to).grh, from; flow_label, sgid_index, hop_limit, traffic_class);
        copy!(to, from; dlid, sl, src_path_bits, static_rate, is_global, port_num);
    }
}

/// # Safety
/// As above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ibv_copy_qp_attr_from_kern(to: *mut QpAttr, from: *const KernelQpAttr) {
    // SAFETY: the caller's promise.
    unsafe {
        copy!(to, from; cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap);
        ibv_copy_ah_attr_from_kern(&raw mut (*to).ah_attr, &raw const (*from).ah_attr);
        ibv_copy_ah_attr_from_kern(&raw mut (*to).alt_ah_attr, &raw const (*from).alt_ah_attr);
        copy!(to, from; pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic,
            min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout);
    }
}

/// # Safety
/// As above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ibv_copy_path_rec_from_kern(to: *mut SaPathRec, from: *const KernelPathRec) {
    // SAFETY: the caller's promise.
    unsafe {
        (*to).dgid = (*from).dgid.map(u64::from_ne_bytes);
        (*to).sgid = (*from).sgid.map(u64::from_ne_bytes);
        (*to).raw_traffic = (*from).raw_traffic as c_int;
        (*to).reversible = (*from).reversible as c_int;
        (*to).mtu = (*from).mtu as u8;
        copy!(to, from; dlid, slid, flow_label, hop_limit, traffic_class, numb_path, pkey, sl, mtu_selector, rate_selector,
            rate, packet_life_time_selector, packet_life_time, preference);
    }
}

/// # Safety
/// As above.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ibv_copy_path_rec_to_kern(to: *mut KernelPathRec, from: *const SaPathRec) {
    // SAFETY: the caller's promise.
    unsafe {
        (*to).dgid = (*from).dgid.map(u64::to_ne_bytes);
        (*to).sgid = (*from).sgid.map(u64::to_ne_bytes);
        (*to).raw_traffic = (*from).raw_traffic as u32;
        (*to).reversible = (*from).reversible as u32;
        (*to).mtu = (*from).mtu.into();
        copy!(to, from; dlid, slid, flow_label, hop_limit, traffic_class, numb_path, pkey, sl, mtu_selector, rate_selector,
            rate, packet_life_time_selector, packet_life_time, preference);
    }
}

/// Where the tree of `/sys` is. A `SYSFS_PATH` of the environment would lead past the device's place in it.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// A file's text without the end of its line: how many bytes, or -1 if there is none or it does not fit.
///
/// # Safety
/// Both names are strings, and there is room for `size` bytes at `to`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    to: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let Ok(mut text) = read([dir.to_bytes(), b"/", file.to_bytes()].concat(), size) else {
        return -1;
    };
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    if text.len() >= size {
        return -1;
    }
    // SAFETY: there is room for one more byte, as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    // No file of `/sys` is longer than a page.
    c_int::try_from(text.len()).unwrap_or(-1)
}

fn read(path: Vec<u8>, max: usize) -> io::Result<Vec<u8>> {
    let path = CString::new(path)?;
    // SAFETY: a string.
    let translated = unsafe { Translated::of(path.as_ptr()) };
    let path = translated
        .as_ref()
        .map_or(path.as_c_str(), Translated::as_c_str);
    let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes());
    let mut text = Vec::new();
    let file = File::open(Path::new(path))?;
    file.take(max as u64).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn a_path_is_the_same_after_it_went_to_the_kernel_and_back() {
        let bytes: [u8; 64] = std::array::from_fn(|at| match at {
            // An MTU, of which libibverbs has the low byte.
            49..=51 => 0,
            at => at as u8,
        });
        // SAFETY: both are plain numbers, of which all bytes are written.
        let there = unsafe {
            let from: KernelPathRec = std::mem::transmute(bytes);
            let mut here = MaybeUninit::<SaPathRec>::zeroed();
            ibv_copy_path_rec_from_kern(here.as_mut_ptr(), &raw const from);
            let here = here.assume_init();
            assert_eq!(
                (here.hop_limit, here.numb_path, here.preference),
                (54, 56, 63)
            );
            let mut there = MaybeUninit::<KernelPathRec>::zeroed();
            ibv_copy_path_rec_to_kern(there.as_mut_ptr(), &raw const here);
            std::mem::transmute::<KernelPathRec, [u8; 64]>(there.assume_init())
        };
        assert_eq!(there, bytes);
    }

    #[test]
    fn a_queue_pairs_attributes_lie_where_the_kernel_puts_them() {
        let mut bytes: [u8; 144] = std::array::from_fn(|at| at as u8);
        bytes[139..].fill(0);
        // SAFETY: as above.
        let here = unsafe {
            let from: KernelQpAttr = std::mem::transmute(bytes);
            let mut here = MaybeUninit::<QpAttr>::zeroed();
            ibv_copy_qp_attr_from_kern(here.as_mut_ptr(), &raw const from);
            here.assume_init()
        };
        assert_eq!(here.qp_state, 0, "it is the caller's");
        assert_eq!(here.dest_qp_num.to_ne_bytes(), [32, 33, 34, 35]);
        assert_eq!(
            here.ah_attr.grh.dgid[1].to_ne_bytes(),
            [48, 49, 50, 51, 52, 53, 54, 55]
        );
        assert_eq!(
            (here.ah_attr.port_num, here.alt_ah_attr.port_num),
            (70, 102)
        );
        assert_eq!(here.cap.max_inline_data.to_ne_bytes(), [120, 121, 122, 123]);
        assert_eq!((here.max_rd_atomic, here.alt_timeout), (130, 138));
    }

    #[test]
    fn a_file_that_does_not_fit_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("four"), "1234\n").expect("written");
        let path = CString::new(dir.path().as_os_str().as_encoded_bytes()).expect("no zero");
        let asked = |file: &CStr, size: usize| {
            let mut to = [7u8; 8];
            // SAFETY: strings, and no more than there is room for.
            let len = unsafe {
                ibv_read_sysfs_file(path.as_ptr(), file.as_ptr(), to.as_mut_ptr().cast(), size)
            };
            (len, to)
        };
        assert_eq!(asked(c"four", 8), (4, *b"1234\0\x07\x07\x07"));
        assert_eq!(asked(c"four", 5).0, 4);
        assert_eq!(asked(c"four", 4).0, -1);
        assert_eq!(asked(c"none", 8).0, -1);
    }
}
