//! An initramfs archive: the "newc" format of cpio, as the kernel unpacks it.
//!
//! What it is not: a general cpio. Files and directories of root's, without times, so
//! that the same content always gives the same bytes.

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

impl Archive {
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, FILE | mode, content);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("a file of an initramfs is small");
        let name_size = u32::try_from(path.len() + 1).expect("a path is short");
        // inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2),
        // length of the name with its zero, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_archive_ends_with_its_trailer() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("init", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let headers: Vec<_> = bytes
            .windows(6)
            .enumerate()
            .filter(|(_, window)| window == b"070701")
            .collect();
        assert_eq!(headers.len(), 3);
        assert!(headers.iter().all(|(place, _)| place % 4 == 0));
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
