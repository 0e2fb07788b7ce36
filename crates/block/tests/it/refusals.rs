//! What is refused, and how it is said.

use block::{BlockError, Caching, Disk, Durable, Engine, FileDevice, Options};

use super::{dir, disk, file};

#[test]
fn misaligned_and_out_of_range_operations_are_refused_with_clear_words() {
    let dir = dir();
    let (path, device) = file(&dir, 1 << 20, Engine::Blocking);
    let disk = disk(&device, 4);
    let block = disk.geometry().block as usize;
    let path = path.display();
    let says = |len: usize, at: u64| {
        let (result, buf) = disk.block_on(disk.read(disk.buffer(len), at));
        assert_eq!(buf.len(), len, "the buffer comes back");
        let (written, _) = disk.block_on(disk.write(buf, at, Durable::No));
        let (read, written) = (result.unwrap_err(), written.unwrap_err());
        assert_eq!(
            read.to_string().replacen("read", "write", 1),
            written.to_string()
        );
        read.to_string()
    };
    assert_eq!(
        says(block, 7),
        format!(
            "read of {block} bytes at 7 on {path} refused: the offset is not a multiple of {block}"
        )
    );
    assert_eq!(
        says(7, 0),
        format!("read of 7 bytes at 0 on {path} refused: the length is not a multiple of {block}")
    );
    for at in [
        1 << 20,
        u64::MAX - u64::MAX % block as u64,
        (1 << 20) + 4096,
    ] {
        assert_eq!(
            says(block, at),
            format!("read of {block} bytes at {at} on {path} refused: the device ends at 1048576")
        );
    }
    assert_eq!(disk.counts().reads + disk.counts().writes, 0);
}

#[test]
fn a_file_is_opened_once() {
    let dir = dir();
    let (path, device) = file(&dir, 1 << 20, Engine::Blocking);
    let again = || FileDevice::open(&path, &Options::existing());
    let error = again().unwrap_err();
    assert!(matches!(error, BlockError::InUse { .. }), "{error}");
    let in_use = format!("{} is in use by another process", path.display());
    assert_eq!(error.to_string(), in_use);
    // A queue holds the file as well.
    let disk = disk(&device, 1);
    drop(device);
    assert!(matches!(again(), Err(BlockError::InUse { .. })));
    drop(disk);
    again().unwrap();
}

#[test]
fn what_cannot_be_a_device_is_refused() {
    let dir = dir();
    let missing = FileDevice::open(dir.path().join("missing"), &Options::existing());
    let error = missing.unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT), "{error}");
    let path = dir.path().join("disk");
    std::fs::write(&path, [0; 100]).unwrap();
    let error = FileDevice::open(&path, &Options::existing()).unwrap_err();
    assert!(error.to_string().contains("less than a block"), "{error}");
    let error = FileDevice::open(&path, &Options::create(8192)).unwrap_err();
    assert!(
        error.to_string().ends_with("it has 100 bytes, not 8192"),
        "{error}"
    );
    let error = FileDevice::open("/dev/zero", &Options::existing()).unwrap_err();
    assert!(error.to_string().contains("neither a file"), "{error}");
    assert!(FileDevice::open(dir.path(), &Options::existing()).is_err());
}

#[test]
fn a_file_cut_short_while_open_is_noticed() {
    let dir = dir();
    for engine in Engine::ALL {
        let (path, device) = file(&dir, 1 << 20, engine);
        let disk = disk(&device, 4);
        let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(8192 + 100).unwrap();
        let read = |at| disk.block_on(disk.read(disk.buffer(8192), at)).0;
        read(0).unwrap();
        let error = read(4096).unwrap_err();
        assert!(
            matches!(
                error,
                BlockError::CutShort {
                    at: 8192,
                    len: 4096,
                    ..
                }
            ),
            "{engine}: {error}"
        );
        assert!(
            matches!(read(65536), Err(BlockError::CutShort { .. })),
            "{engine}"
        );
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn the_page_cache_is_a_choice() {
    let dir = dir();
    let path = dir.path().join("disk");
    let open = |caching| {
        let options = Options::create(1 << 20).with_caching(caching);
        FileDevice::open(&path, &options)
    };
    assert!(!open(Caching::Use).unwrap().is_direct());
    let direct = open(Caching::Refuse).is_ok();
    assert_eq!(open(Caching::Avoid).unwrap().is_direct(), direct);
    // Memory has no direct transfers, or pretends to; either way it works.
    if let Ok(memory) = tempfile::TempDir::new_in("/dev/shm") {
        let device = FileDevice::open(memory.path().join("disk"), &Options::create(1 << 20));
        let disk = Disk::open(&device.unwrap(), 4).unwrap();
        let (result, _) = disk.block_on(disk.write(disk.buffer(4096), 0, Durable::Yes));
        result.unwrap();
    }
}

/// The drive that a directory is on; containers may have none that they can see.
fn drive_of(dir: &str) -> Option<String> {
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(dir).unwrap());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let about = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = about
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = format!("/dev/{name}");
    std::fs::exists(&path).unwrap_or(false).then_some(path)
}

#[test]
fn a_mounted_drive_is_refused() {
    let Some(drive) = drive_of("/") else {
        return;
    };
    let error = FileDevice::open(&drive, &Options::existing()).unwrap_err();
    // Unless it is not ours to open anyway.
    let is_forbidden = [rustix::io::Errno::ACCESS, rustix::io::Errno::PERM]
        .map(Some)
        .contains(&error.errno());
    assert!(
        is_forbidden || matches!(error, BlockError::InUse { .. }),
        "{error}"
    );
}
