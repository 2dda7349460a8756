//! Which image the name of a file means, and which VMs have an image.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::image::{self, Image, ImageFile};
use berth_domain::name::VmName;
use berth_domain::operation::Kind;
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;

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
    ///
    /// It looks at every VM, and serves what is rare.
    pub fn vms_with_image(&self, image: &Image) -> impl Iterator<Item = &VmName> {
        let file = image.file().to_string();
        let vms = self.vms.iter();
        vms.filter(move |(_, vm)| self.has_file(vm, &file))
            .map(|(name, _)| name)
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
        for vm in self.vms.values() {
            for file in self.files_of(vm) {
                if let Ok(file) = file.parse::<ImageFile>() {
                    unused.remove(&file);
                }
            }
        }
        unused
    }

    fn has_file(&self, vm: &Vm, file: &str) -> bool {
        self.files_of(vm).any(|has| has == file)
    }

    /// Returns the files that a VM has, and those that it is about to be rebuilt from.
    fn files_of<'s>(&'s self, vm: &'s Vm) -> impl Iterator<Item = &'s str> {
        let operation = vm.operation.and_then(|id| self.operation(id));
        let next = match operation.map(|operation| &operation.kind) {
            Some(Kind::Rebuild { images }) => images.as_slice(),
            Some(_) | None => &[],
        };
        vm.spec.image_files().chain(next.iter().map(String::as_str))
    }
}
