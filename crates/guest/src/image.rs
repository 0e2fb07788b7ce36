//! The kernel, its modules, and the root directory.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

/// What the machine needs, and the packages of Debian that have it.
const NEEDED: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
];

/// The modules that are there when a job begins: an NFSv4 client over a virtual network card.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "nfsv4"];

/// The modules that a job loads by `load NAME`, with all that these need.
const ON_DEMAND: [&str; 3] = ["virtio_blk", "ext4", "nfsd"];

/// The files of an image.
const KERNEL: &str = "vmlinuz";
const ROOT: &str = "root.cpio.gz";

/// How long after its last use an image is removed when another one is made.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// What runs first: mounts, modules, the network, then the job. What the job said ends with its exit
/// code, on a line that no job's own output has.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
load start
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
stty -onlcr </dev/console 2>/dev/null
echo "guest: begin"
sh /job </dev/null 2>&1
echo "guest: end $?"
poweroff -f
"#;

/// Loads the modules of a list, but those that are loaded already.
const LOAD: &str = r#"#!/bin/sh
for module in $(cat /modules/$1.list); do
    name=${module%.ko}
    test -d /sys/module/$(echo $name | tr - _) || insmod /modules/$module || echo "insmod $module failed"
done
"#;

/// The first of the packages that this machine lacks, if it lacks one.
#[must_use]
pub fn missing() -> Option<&'static str> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = std::env::split_paths(&path).collect::<Vec<_>>();
        let sbin = ["/sbin", "/usr/sbin"].map(PathBuf::from);
        let mut places = directories.iter().chain(&sbin);
        places.any(|directory| directory.join(program).exists())
    };
    let lacks = NEEDED.iter().find(|(program, _)| !has(program));
    lacks.map(|(_, package)| *package)
}

/// A kernel and a root directory for it: both in a directory that appears at once, so that they are always of one making.
/// Modules of one kernel are of no use to another.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its time of change is when the image was last used.
    place: PathBuf,
    pub(crate) kernel: PathBuf,
    /// The root directory as a compressed archive, which further ones can follow.
    pub(crate) root: PathBuf,
}

impl Image {
    /// The image in this directory, made if it is not there. Takes some seconds, and the network, the
    /// first time; several processes may ask at once.
    ///
    /// # Errors
    /// A package is [`missing`], or one of the programs fails: what it said is in the message.
    pub fn open(directory: &Path) -> Result<Self> {
        let image = Self::at(directory, content());
        if !image.begin_use()? {
            if let Some(package) = missing() {
                bail!("a guest needs the package {package}: apt-get install {package}");
            }
            image.make(directory)?;
            image.sweep(directory, SystemTime::now())?;
        }
        Ok(image)
    }

    fn at(directory: &Path, content: u64) -> Self {
        let place = directory.join(format!("image-{content:016x}"));
        Self {
            kernel: place.join(KERNEL),
            root: place.join(ROOT),
            place,
        }
    }

    /// Says that it is used from now on; false if it is not there.
    fn begin_use(&self) -> Result<bool> {
        let touched =
            fs::File::open(&self.place).and_then(|place| place.set_modified(SystemTime::now()));
        match touched {
            Ok(()) if self.kernel.exists() && self.root.exists() => Ok(true),
            // Removing it was interrupted.
            Ok(()) => {
                fs::remove_dir_all(&self.place)?;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| self.place.display().to_string()),
        }
    }

    /// Removes images that nobody has used for long: those of other branches, which somebody may be booting, are young.
    fn sweep(&self, directory: &Path, now: SystemTime) -> Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_image = name.starts_with("image-");
            // What was there before images had directories.
            let is_part = name.starts_with("vmlinuz") || name.starts_with("root-");
            if !(is_image || is_part) || path == self.place {
                continue;
            }
            let used = fs::metadata(&path).and_then(|about| about.modified());
            let age = used.ok().and_then(|used| now.duration_since(used).ok());
            if age.is_some_and(|age| age > OLD) {
                let removed = match is_image {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
                match removed {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                    // Or somebody else has removed it.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Makes everything beside the place, and moves it there at once.
    fn make(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        let scratch = tempfile::tempdir_in(directory)?;
        let package = fetch_kernel(scratch.path())?;
        let files = scratch.path().join("files");
        output(Command::new("dpkg-deb").arg("-x").args([&package, &files]))?;
        let release = the_only_entry(&files.join("lib/modules"))?;
        output(
            Command::new("/sbin/depmod")
                .arg("-b")
                .arg(&files)
                .arg(&release),
        )?;
        let root = scratch.path().join("root");
        make_root(&root, &files, &release)?;
        let place = scratch.path().join("image");
        fs::create_dir(&place)?;
        pack(&root, &place.join(ROOT))?;
        let kernel = files.join(format!("boot/vmlinuz-{release}"));
        fs::rename(kernel, place.join(KERNEL))?;
        self.appear(&place)
    }

    /// Moves what was made to its place; if somebody else has made it meanwhile, theirs stays, which may be in use.
    fn appear(&self, made: &Path) -> Result<()> {
        match fs::rename(made, &self.place) {
            // File systems differ in what they call it.
            Err(error)
                if [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists]
                    .contains(&error.kind()) =>
            {
                Ok(())
            }
            moved => moved.with_context(|| self.place.display().to_string()),
        }
    }
}

/// Another number for another content of the root directory, so that an older image is not taken for it.
fn content() -> u64 {
    let mut hasher = DefaultHasher::new();
    (INIT, LOAD, MODULES, ON_DEMAND).hash(&mut hasher);
    hasher.finish()
}

/// Fetches the newest kernel that Debian makes for virtual machines; returns its package.
fn fetch_kernel(to: &Path) -> Result<PathBuf> {
    let names = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let name = names
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .context("apt-cache knows no linux-image-cloud-amd64: apt-get update")?;
    output(
        Command::new("apt-get")
            .args(["download", "-qq", name])
            .current_dir(to),
    )?;
    the_only_file(to, "deb")
}

fn the_only_file(directory: &Path, extension: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut paths = entries.into_iter().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|is| is == extension))
        .with_context(|| format!("no .{extension} in {}", directory.display()))
}

fn the_only_entry(directory: &Path) -> Result<String> {
    let entry = fs::read_dir(directory)
        .with_context(|| format!("looking into {}", directory.display()))?
        .next()
        .context("a kernel without modules")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Busybox under all its names, the modules in their order, and what runs first.
fn make_root(root: &Path, kernel: &Path, release: &str) -> Result<()> {
    for directory in [
        "bin", "sbin", "dev", "proc", "sys", "tmp", "etc", "mnt", "modules",
    ] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::copy("/bin/busybox", root.join("bin/busybox")).context("copying busybox")?;
    for name in output(Command::new("busybox").arg("--list"))?.lines() {
        if name != "busybox" {
            symlink("/bin/busybox", root.join("bin").join(name))?;
        }
    }
    put_modules(root, kernel, release, "start", &MODULES)?;
    for module in ON_DEMAND {
        put_modules(root, kernel, release, module, &[module])?;
    }
    put_script(&root.join("init"), INIT)?;
    put_script(&root.join("bin/load"), LOAD)
}

fn put_script(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Unpacks some modules and those they need, and lists them in their order.
fn put_modules(
    root: &Path,
    kernel: &Path,
    release: &str,
    list: &str,
    modules: &[&str],
) -> Result<()> {
    let mut order: Vec<String> = Vec::new();
    for module in modules {
        let mut command = Command::new("/sbin/modprobe");
        command
            .arg("-d")
            .arg(kernel)
            .args(["-S", release, "--show-depends", module]);
        for line in output(&mut command)?.lines() {
            // What is built into the kernel is told as `builtin NAME`.
            let Some(path) = line.trim().strip_prefix("insmod ") else {
                continue;
            };
            let path = Path::new(path.trim());
            let name = path
                .file_name()
                .context("a module's path")?
                .to_string_lossy();
            let name = name.trim_end_matches(".xz").to_string();
            if !order.contains(&name) {
                unpack_module(path, &root.join("modules").join(&name))?;
                order.push(name);
            }
        }
    }
    fs::write(
        root.join("modules").join(format!("{list}.list")),
        order.join("\n"),
    )?;
    Ok(())
}

/// Busybox loads no compressed modules.
fn unpack_module(from: &Path, to: &Path) -> Result<()> {
    if from.extension().is_some_and(|extension| extension == "xz") {
        let unpacked = Command::new("xz").arg("-dc").arg(from).output()?;
        ensure!(
            unpacked.status.success(),
            "xz cannot unpack {}",
            from.display()
        );
        fs::write(to, unpacked.stdout)?;
    } else {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// A directory as a compressed archive, as the kernel takes it for its first root.
pub(crate) fn pack(directory: &Path, archive: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "find . | cpio -o -H newc --quiet | gzip -1 > \"$0\""])
        .arg(archive)
        .current_dir(directory);
    output(&mut command)?;
    Ok(())
}

/// What a program printed; an error says what it complained of.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let complaint = String::from_utf8_lossy(&stderr);
    ensure!(
        status.success(),
        "{command:?}: {status}: {}",
        complaint.trim()
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if it was made.
    fn made(directory: &Path, image: &Image, text: &str) {
        let place = directory.join("made");
        fs::create_dir(&place).expect("made");
        for file in [KERNEL, ROOT] {
            fs::write(place.join(file), text).expect("written");
        }
        image.appear(&place).expect("moved");
        drop(fs::remove_dir_all(place));
    }

    #[test]
    fn images_that_nobody_uses_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let [old, used, young, own] = [1, 2, 3, 4].map(|content| Image::at(dir, content));
        for image in [&old, &used, &young, &own] {
            assert!(!image.begin_use().expect("looked for"), "it is not made");
            made(dir, image, "");
        }
        let (part, other) = (dir.join("root-5.cpio.gz"), dir.join("other"));
        for path in [&part, &other] {
            fs::write(path, "").expect("written");
        }
        let now = SystemTime::now();
        for path in [&old.place, &used.place, &own.place, &part, &other] {
            let file = fs::File::open(path).expect("opened");
            file.set_modified(now - 2 * OLD).expect("set");
        }
        assert!(used.begin_use().expect("looked for"));
        own.sweep(dir, now).expect("swept");
        for image in [&used, &young, &own] {
            assert!(image.kernel.exists() && image.root.exists());
        }
        assert!(!old.place.exists() && !part.exists() && other.exists());
        fs::remove_file(&used.kernel).expect("removed");
        assert!(!used.begin_use().expect("looked for"));
        made(dir, &used, "");
        assert!(used.begin_use().expect("looked for"));
    }

    #[test]
    fn a_kernel_and_its_root_are_of_one_making() {
        let dir = tempfile::tempdir().expect("a directory");
        let image = Image::at(dir.path(), 1);
        for maker in ["first", "second"] {
            made(dir.path(), &image, maker);
            let read = |path: &Path| fs::read_to_string(path).expect("read");
            assert_eq!([read(&image.kernel), read(&image.root)], ["first"; 2]);
        }
    }
}
