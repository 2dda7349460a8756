//! Disks and images of a simulated hypervisor: names alone, there is nothing in them.
//!
//! They live as long as the process; its file of guests does not keep them.

use std::collections::BTreeSet;

use berth_domain::id::VmUid;

use super::host::{Host, Phase};
use crate::domain::{DomainSpec, Draft};
use crate::error::Error;

/// The images that were made here.
#[derive(Clone, Debug, Default)]
pub(super) struct Images {
    drafts: BTreeSet<Draft>,
    published: BTreeSet<String>,
}

impl Host {
    /// Recreates the disks of a guest that is off.
    ///
    /// # Errors
    ///
    /// When it is here.
    pub fn make_disks(&mut self, vm: VmUid) -> Result<(), Error> {
        if self.domains().contains_key(&vm) {
            return Err(self.wrong_state(vm, "make the disks of"));
        }
        Ok(())
    }

    /// Copies a disk of a guest to a draft.
    ///
    /// # Errors
    ///
    /// When there is no such disk, the name is taken, or the guest is on its way.
    pub fn copy_disk(
        &mut self,
        spec: &DomainSpec,
        disk: usize,
        draft: &Draft,
    ) -> Result<(), Error> {
        match self.domains().get(&spec.uid).map(|d| &d.phase) {
            None | Some(Phase::Running | Phase::Stopped) => {}
            Some(
                Phase::Prepared
                | Phase::Receiving
                | Phase::Sending
                | Phase::Switching { .. }
                | Phase::PullingIn
                | Phase::Torn,
            ) => return Err(self.wrong_state(spec.uid, "copy a disk of")),
        }
        if disk >= spec.spec.disks.len() {
            let message = format!("guest {} has no disk {disk}", spec.vm);
            return Err(Error::Refused { message });
        }
        self.is_free_name(&draft.image)?;
        self.images.drafts.insert(draft.clone());
        Ok(())
    }

    /// Gives a draft its name.
    ///
    /// # Errors
    ///
    /// When there is no draft, or the name is taken.
    pub fn publish_image(&mut self, draft: &Draft) -> Result<(), Error> {
        if !self.images.drafts.contains(draft) {
            return if self.images.published.contains(&draft.image) {
                Ok(())
            } else {
                let message = format!("there is no draft of image {:?}", draft.image);
                Err(Error::Refused { message })
            };
        }
        self.is_free_name(&draft.image)?;
        self.images.drafts.remove(draft);
        self.images.published.insert(draft.image.clone());
        Ok(())
    }

    /// Removes a draft; returns whether it was published before.
    pub fn drop_image(&mut self, draft: &Draft) -> bool {
        !self.images.drafts.remove(draft) && self.images.published.contains(&draft.image)
    }

    /// Returns the names of the images that were made here.
    #[must_use]
    pub fn images(&self) -> &BTreeSet<String> {
        &self.images.published
    }

    fn is_free_name(&self, image: &str) -> Result<(), Error> {
        if self.images.published.contains(image) {
            return Err(Error::ImageExists {
                image: image.to_owned(),
            });
        }
        Ok(())
    }
}
