//! The seed: a small disk from which a guest reads what it was given for its first boot, in the form of
//! cloud-init's data source NoCloud.
//!
//! A FAT file system with the label `CIDATA` and the files `meta-data`, `user-data` and, where there is
//! one, `network-config`. `meta-data` has the VM's UUID as `instance-id`, its name as `local-hostname`, and
//! the SSH keys as `public-keys`.
//!
//! Invariant: equal guests with equal contents have equal seeds, byte for byte.

use std::io::{self, Cursor, Write as _};

use berth_domain::first_boot::FirstBoot;
use berth_domain::id::VmUid;
use berth_domain::name::VmName;
use berth_domain::vm::SEED_BYTES;
use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

/// The label by which cloud-init knows it, as FAT stores labels.
const LABEL: [u8; 11] = *b"CIDATA     ";

/// Returns the bytes of a seed.
///
/// # Errors
///
/// What it holds does not fit: a fault of the program, since all of it is bounded.
pub fn image(vm: &VmName, uid: VmUid, first_boot: &FirstBoot) -> io::Result<Vec<u8>> {
    let size = usize::try_from(SEED_BYTES).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    // The number of a FAT volume: what differs between guests.
    let number = uid.0.as_u64_pair().1.to_be_bytes();
    let number = u32::from_be_bytes([number[4], number[5], number[6], number[7]]);
    let options = FormatVolumeOptions::new();
    let options = options.volume_label(LABEL).volume_id(number);
    fatfs::format_volume(Cursor::new(&mut bytes[..]), options)?;
    {
        let volume = FileSystem::new(Cursor::new(&mut bytes[..]), FsOptions::new())?;
        let root = volume.root_dir();
        let network_config = first_boot.network_config.as_bytes();
        for (name, content) in [
            ("meta-data", meta_data(vm, uid, first_boot).as_bytes()),
            ("user-data", &first_boot.user_data[..]),
            ("network-config", network_config),
        ] {
            // cloud-init needs the first two, empty or not.
            if name != "network-config" || !content.is_empty() {
                let mut file = root.create_file(name)?;
                file.write_all(content)?;
                file.flush()?;
            }
        }
    }
    Ok(bytes)
}

/// Returns what cloud-init reads about the guest itself: YAML, in which texts of JSON are texts.
fn meta_data(vm: &VmName, uid: VmUid, first_boot: &FirstBoot) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut lines = vec![
        format!("instance-id: {}", text(&uid.to_string())),
        format!("local-hostname: {}", text(vm.as_str())),
    ];
    if !first_boot.ssh_keys.is_empty() {
        lines.push("public-keys:".to_owned());
        lines.extend(
            first_boot
                .ssh_keys
                .iter()
                .map(|key| format!("- {}", text(key))),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use berth_domain::first_boot::{NETWORK_CONFIG_BYTES_MAX, USER_DATA_BYTES_MAX};
    use uuid::Uuid;

    use super::*;

    fn files(bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
        let volume = FileSystem::new(Cursor::new(bytes), FsOptions::new()).unwrap();
        assert_eq!(volume.volume_label(), "CIDATA");
        let root = volume.root_dir();
        root.iter()
            .map(|entry| {
                let entry = entry.unwrap();
                let mut content = Vec::new();
                entry.to_file().read_to_end(&mut content).unwrap();
                (entry.file_name(), content)
            })
            .collect()
    }

    /// Goal: what is given is what is read, at the bounds and below, whatever bytes it has.
    #[test]
    fn what_is_written_is_read() {
        let vm = VmName::new("web").unwrap();
        let uid = VmUid(Uuid::from_u128(7));
        let key = "ssh-ed25519 AAAAC3 \"quoted\" \\ ann".to_owned();
        let every_byte: Vec<u8> = (0..=u8::MAX).cycle().take(USER_DATA_BYTES_MAX).collect();
        for (user_data, network, keys) in [
            (Vec::new(), String::new(), Vec::new()),
            (
                b"#cloud-config\n".to_vec(),
                "version: 2\n".to_owned(),
                vec![key.clone()],
            ),
            (
                every_byte,
                "x".repeat(NETWORK_CONFIG_BYTES_MAX),
                vec![key; 32],
            ),
        ] {
            let first_boot = FirstBoot {
                user_data: user_data.clone(),
                network_config: network.clone(),
                ssh_keys: keys.clone(),
            };
            let bytes = image(&vm, uid, &first_boot).unwrap();
            assert_eq!(bytes.len() as u64, SEED_BYTES);
            assert_eq!(image(&vm, uid, &first_boot).unwrap(), bytes, "it differs");
            let files = files(bytes);
            assert_eq!(files[0].0, "meta-data");
            let meta_data = String::from_utf8(files[0].1.clone()).unwrap();
            let lines: Vec<&str> = meta_data.lines().collect();
            assert_eq!(
                lines[..2],
                [
                    "instance-id: \"00000000-0000-0000-0000-000000000007\"",
                    "local-hostname: \"web\""
                ]
            );
            let read: Vec<String> = lines
                .iter()
                .skip(3)
                .map(|line| serde_json::from_str(line.strip_prefix("- ").unwrap()).unwrap())
                .collect();
            assert_eq!(read, keys);
            assert_eq!(files[1], ("user-data".to_owned(), user_data));
            let last = files.get(2).cloned();
            let expected = ("network-config".to_owned(), network.into_bytes());
            assert_eq!(last, (!expected.1.is_empty()).then_some(expected));
        }
    }
}
