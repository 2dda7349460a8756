//! Which images a VM is made from: the names of the cluster's images become the names of their files.
//!
//! A name that the cluster does not have is left: it is a file that an operator put on the hosts.

use std::sync::Arc;

use berth_domain::fault::{self, Fault};
use berth_domain::image::Image;
use berth_domain::name::{ImageName, VmName};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{BootSource, Disk, DiskFormat};
use berth_state::State;

/// Names the files of the images that a new VM is made from. Returns the image of its first disk.
pub(super) fn name_files(
    state: &State,
    boot: &mut BootSource,
    disks: &mut [Disk],
) -> Result<Option<Arc<Image>>, Refusal> {
    let mut faults = Vec::new();
    let mut first = None;
    for (index, disk) in disks.iter_mut().enumerate() {
        let Some(text) = &mut disk.image else {
            continue;
        };
        let Some(image) = requested(state, text)? else {
            continue;
        };
        *text = image.file().to_string();
        let field = format!("disks[{index}]");
        image.check_disk(&field, disk.format, disk.size_bytes(), &mut faults);
        if index == 0 {
            first = Some(image);
        }
    }
    if let BootSource::Kernel { kernel, initrd, .. } = boot {
        for (field, text) in [("boot.kernel", kernel), ("boot.initrd", initrd)] {
            let Some(image) = requested(state, text)? else {
                continue;
            };
            *text = image.file().to_string();
            if image.format != DiskFormat::Raw {
                let rule = "must be an image of the format raw";
                faults.push(Fault::new(field, &image.name, rule));
            }
        }
    }
    match faults.as_slice() {
        [] => Ok(first),
        faults => Err(fault::refusal("vm", faults)),
    }
}

/// Names the files of the images that the disks of a VM are made from again, in order.
pub(super) fn name_files_again(
    state: &State,
    vm: &VmName,
    images: &[String],
) -> Result<Vec<String>, Refusal> {
    let Some(vm) = state.vm(vm) else {
        return Err(Refusal::not_found("vm", vm));
    };
    let mut files = images.to_vec();
    let mut faults = Vec::new();
    for (index, (text, disk)) in files.iter_mut().zip(&vm.spec.disks).enumerate() {
        if let Some(image) = requested(state, text)? {
            *text = image.file().to_string();
            let field = format!("disks[{index}]");
            image.check_disk(&field, disk.format, disk.size_bytes(), &mut faults);
        }
    }
    match faults.as_slice() {
        [] => Ok(files),
        faults => Err(fault::refusal("vm", faults)),
    }
}

/// Returns the image of a name, or of the name of a file; nothing where the cluster has none.
fn requested(state: &State, text: &str) -> Result<Option<Arc<Image>>, Refusal> {
    if state.header().cluster_version < ServiceVersion::IMAGES {
        return Ok(None);
    }
    let named = || {
        ImageName::new(text)
            .ok()
            .and_then(|name| state.image(&name))
    };
    let image = match state.image_of_file(text)? {
        Some(image) => Some(image),
        None => named(),
    };
    if let Some(image) = image {
        image.ready()?;
    }
    Ok(image.cloned())
}
