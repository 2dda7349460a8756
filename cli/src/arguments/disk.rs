//! The disk of a new VM as it is typed: an image, a size and a format.

use berth_domain::vm::DiskFormat;

use super::size;

/// A disk of a new VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskArgument {
    /// The image: one of the cluster's, or a file of the hosts.
    pub image: String,
    /// The size of the disk.
    pub size_gib: u64,
    /// The image's format, if it was stated.
    pub format: Option<DiskFormat>,
}

impl DiskArgument {
    /// Returns the format that was stated, or that the name suggests. The agent compares it with the file.
    #[must_use]
    pub fn suggested_format(&self) -> DiskFormat {
        let suggested = || suggested_format(&self.image);
        self.format.unwrap_or_else(suggested)
    }
}

/// Returns the format that the name of a file suggests.
#[must_use]
pub fn suggested_format(file: &str) -> DiskFormat {
    match file.ends_with(".qcow2") {
        true => DiskFormat::Qcow2,
        false => DiskFormat::Raw,
    }
}

/// Reads a disk.
pub(super) fn read(text: &str) -> Result<DiskArgument, String> {
    let formats = [(":qcow2", DiskFormat::Qcow2), (":raw", DiskFormat::Raw)];
    let stated = formats.iter().find_map(|(ending, format)| {
        let rest = text.strip_suffix(ending)?;
        Some((rest, *format))
    });
    let rest = stated.map_or(text, |(rest, _)| rest);
    let (image, size) = rest
        .rsplit_once(':')
        .ok_or("expected IMAGE:GIB or IMAGE:GIB:FORMAT, with qcow2 or raw as format")?;
    let size_gib = size::gib(size).map_err(|why| format!("the size {size:?} is wrong: {why}"))?;
    Ok(DiskArgument {
        image: image.to_owned(),
        size_gib,
        format: stated.map(|(_, format)| format),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a stated format is passed on, whatever the name suggests.
    #[test]
    fn the_format_of_an_image_is_stated_or_suggested_by_its_name() {
        let check = |text: &str, image: &str, size_gib, format| {
            let parsed = read(text).unwrap();
            assert_eq!(
                (&*parsed.image, parsed.size_gib),
                (image, size_gib),
                "{text}"
            );
            assert_eq!(parsed.suggested_format(), format, "{text}");
        };
        check("a.qcow2:4", "a.qcow2", 4, DiskFormat::Qcow2);
        check("a.img:4", "a.img", 4, DiskFormat::Raw);
        check("a.qcow2:4:raw", "a.qcow2", 4, DiskFormat::Raw);
        check("a.img:4:qcow2", "a.img", 4, DiskFormat::Qcow2);
        check("a:b:4", "a:b", 4, DiskFormat::Raw);
        check("a.img:1T", "a.img", 1024, DiskFormat::Raw);
        for text in ["a", "a:", "a:x", "a:4:vmdk", "a:qcow2", "a:-1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
