//! Which image the name of a file means, and which VMs have an image.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::image::{self, Image, ImageFile};
use berth_domain::name::VmName;
use berth_domain::operation::Kind;
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;
use imbl::OrdSet;

use crate::state::State;

impl State {
    /// Returns the image of a file; nothing where the text is no such file name.
    ///
    /// # Errors
    ///
    /// `IMAGE_NOT_FOUND` where it is one, and the cluster does not have the image.
    pub fn image_of_file(&self, text: &str) -> Result<Option<&Arc<Image>>, Refusal> {
        let Ok(file) = text.parse::<ImageFile>() else {
            return Ok(None);
        };
        let image = self.image(file.name());
        match image.filter(|image| image.file() == file) {
            Some(image) => Ok(Some(image)),
            None => Err(image::not_found(text)),
        }
    }

    /// Returns the VMs that have an image, or are about to have it.
    #[must_use]
    pub fn vms_with_image(&self, image: &Image) -> OrdSet<VmName> {
        let file = image.file();
        let mut vms = self.index.image_vms.get(&file).cloned().unwrap_or_default();
        let next = self.rebuilt().filter(|(next, _)| *next == file);
        vms.extend(next.map(|(_, vm)| vm.clone()));
        vms
    }

    /// Returns those of some files that are of no image of the cluster, and that no VM has: they may be
    /// deleted. While the cluster recovers there is none, since not all VMs are known.
    #[must_use]
    pub fn unused_files(&self, files: &BTreeSet<ImageFile>) -> BTreeSet<ImageFile> {
        let is_known = |file: &ImageFile| {
            let image = self.image(file.name());
            image.is_some_and(|image| image.file() == *file)
        };
        let mut unused: BTreeSet<ImageFile> =
            files.iter().filter(|f| !is_known(f)).cloned().collect();
        if unused.is_empty() || self.is_recovering() {
            return BTreeSet::new();
        }
        for (file, _) in self.rebuilt() {
            unused.remove(&file);
        }
        unused.retain(|file| !self.index.image_vms.contains_key(file));
        unused
    }

    /// Returns the files that VMs are about to be rebuilt from.
    fn rebuilt(&self) -> impl Iterator<Item = (ImageFile, &VmName)> {
        let rebuilds = self.running_operations().filter_map(|operation| {
            let Kind::Rebuild { images } = &operation.kind else {
                return None;
            };
            Some((images, operation.vm()?))
        });
        rebuilds.flat_map(|(images, vm)| {
            let files = images.iter().filter_map(|file| file.parse().ok());
            files.map(move |file| (file, vm))
        })
    }
}

/// Returns the files of images of the cluster that a VM has, each once.
pub(crate) fn files_of(vm: &Vm) -> BTreeSet<ImageFile> {
    let files = vm.spec.image_files();
    files.filter_map(|file| file.parse().ok()).collect()
}
