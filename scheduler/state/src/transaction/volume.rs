//! Writes to volumes, and the indexes by which they are found.

use std::sync::Arc;

use berth_domain::name::VolumeId;
use berth_domain::volume::{Volume, consumer_of};

use super::{Journal, Transaction};
use crate::row::{Change, Key, Row};

impl<J: Journal> Transaction<'_, J> {
    /// Writes a volume. What it takes is written beside it, as a consumer's.
    pub(crate) fn put_volume(&mut self, volume: Volume) -> Arc<Volume> {
        let volume = Arc::new(volume);
        let id = volume.id.clone();
        let old = self.state.volumes.insert(id.clone(), volume.clone());
        if let Some(old) = &old {
            self.unlist_volume(old);
        }
        let index = &mut self.state.index;
        for replica in &volume.replicas {
            index
                .host_volumes
                .insert((replica.host.clone(), id.clone()));
        }
        if !volume.is_deleting() {
            let name = volume.display_name.as_str().into();
            index.volume_names.insert(name, id.clone());
        }
        if let Some(consumer) = consumer_of(&id) {
            index.volume_consumers.insert(consumer, id.clone());
        }
        self.journal.record(|| Change {
            key: Key::Volume(id),
            old: old.map(Row::Volume),
            new: Some(Row::Volume(volume.clone())),
        });
        volume
    }

    pub(crate) fn remove_volume(&mut self, id: &VolumeId) {
        let old = self.state.volumes.remove(id);
        if let Some(old) = &old {
            self.unlist_volume(old);
        }
        self.journal.record(|| Change {
            key: Key::Volume(id.clone()),
            old: old.map(Row::Volume),
            new: None,
        });
    }

    fn unlist_volume(&mut self, volume: &Volume) {
        let index = &mut self.state.index;
        for replica in &volume.replicas {
            let entry = (replica.host.clone(), volume.id.clone());
            index.host_volumes.remove(&entry);
        }
        // By now the name may be another one's.
        if index.volume_names.get(volume.display_name.as_str()) == Some(&volume.id) {
            index.volume_names.remove(volume.display_name.as_str());
        }
        if let Some(consumer) = consumer_of(&volume.id) {
            index.volume_consumers.remove(&consumer);
        }
    }
}
