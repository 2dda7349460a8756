//! A disk that a BIOS boots: boot sector, one FAT partition, loader, kernel.
//!
//! ```text
//! 0       boot code and partition table
//! 1 MiB   partition: FAT16 with syslinux, the kernel, the initramfs
//! 63 MiB  nothing; the guest stores a word here
//! 64 MiB  end
//! ```

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::run;

/// Changes with anything below that changes the disk; part of the cache's digest.
pub(super) const LAYOUT_VERSION: u32 = 1;

const SECTOR: u32 = 512;
const MIB: u32 = 1 << 20;
const DISK_SIZE: u32 = 64 * MIB;
const PARTITION_START: u32 = MIB;
const PARTITION_SIZE: u32 = 62 * MIB;
/// The part of the first sector that is code; the partition table follows it.
const CODE_SIZE: usize = 440;
const TABLE_AT: u64 = 446;

/// syslinux's code for the first sector: it starts the active partition.
pub(super) fn boot_sector() -> Result<Vec<u8>> {
    let path = PathBuf::from("/usr/lib/syslinux/mbr/mbr.bin");
    let code = fs::read(&path).context("syslinux-common is not installed")?;
    ensure!(
        code.len() <= CODE_SIZE,
        "{} is too long for a boot sector",
        path.display()
    );
    Ok(code)
}

/// Writes the disk to `path`, in qcow2 format.
pub(super) fn write(
    path: &Path,
    boot_sector: &[u8],
    kernel: &Path,
    initrd: &Path,
    command_line: &str,
) -> Result<()> {
    let raw = path.with_extension("raw");
    write_partition_table(&raw, boot_sector)?;

    let partition = format!("{}@@{PARTITION_START}", raw.display());
    run(mtools("mformat", &partition)
        .args(["-T", &(PARTITION_SIZE / SECTOR).to_string()])
        .args(["-H", &(PARTITION_START / SECTOR).to_string()])
        .args(["-h", "16", "-s", "63", "::"]))?;
    let configuration = path.with_extension("cfg");
    fs::write(
        &configuration,
        format!(
            "DEFAULT guest\nPROMPT 0\nTIMEOUT 0\n\
             LABEL guest\nKERNEL /vmlinuz\nINITRD /initrd.img\nAPPEND {command_line}\n"
        ),
    )?;
    let files = [
        (kernel, "::vmlinuz"),
        (initrd, "::initrd.img"),
        (&configuration, "::syslinux.cfg"),
    ];
    for (from, to) in files {
        run(mtools("mcopy", &partition).arg(from).arg(to))?;
    }
    run(Command::new("syslinux")
        .args(["--install", "--offset", &PARTITION_START.to_string()])
        .arg(&raw))?;
    run(Command::new("qemu-img")
        .args(["convert", "-f", "raw", "-O", "qcow2"])
        .arg(&raw)
        .arg(path))
}

fn write_partition_table(raw: &Path, boot_sector: &[u8]) -> Result<()> {
    let mut file = File::create(raw)?;
    file.set_len(u64::from(DISK_SIZE))?;
    file.write_all(boot_sector)?;
    file.seek(SeekFrom::Start(TABLE_AT))?;
    // Active, FAT16. The addresses by cylinder, head and sector say "too far", so that
    // the ones by number count.
    let mut entry = vec![0x80, 0xfe, 0xff, 0xff, 0x0e, 0xfe, 0xff, 0xff];
    entry.extend_from_slice(&(PARTITION_START / SECTOR).to_le_bytes());
    entry.extend_from_slice(&(PARTITION_SIZE / SECTOR).to_le_bytes());
    file.write_all(&entry)?;
    file.seek(SeekFrom::Start(u64::from(SECTOR) - 2))?;
    file.write_all(&[0x55, 0xaa])?;
    Ok(())
}

fn mtools(program: &str, partition: &str) -> Command {
    let mut command = Command::new(program);
    // Its checks of geometry are about floppy disks.
    command
        .env("MTOOLS_SKIP_CHECK", "1")
        .args(["-i", partition]);
    command
}
