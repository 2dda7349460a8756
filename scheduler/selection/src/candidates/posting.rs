//! Names as small numbers, and for each the providers that have it.
//!
//! Invariant: a list is in ascending order and holds each provider once; a name that no provider
//! has any more is forgotten, and its number is given to another one.

use std::collections::BTreeMap;

/// Providers by a name.
#[derive(Clone, Debug)]
pub(crate) struct Postings<K> {
    numbers: BTreeMap<K, u32>,
    lists: Vec<Vec<u32>>,
    free: Vec<u32>,
}

impl<K> Default for Postings<K> {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            lists: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<K: Ord + Clone> Postings<K> {
    /// Returns the number of a name, if any provider has it.
    pub(crate) fn number(&self, name: &K) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the providers that have it.
    pub(crate) fn list(&self, number: u32) -> &[u32] {
        &self.lists[number as usize]
    }

    /// Says that a provider has it; returns its number.
    pub(crate) fn add(&mut self, name: &K, provider: u32) -> u32 {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.new_number(name),
        };
        let list = &mut self.lists[number as usize];
        // Providers mostly come in ascending order.
        if list.last().is_none_or(|last| *last < provider) {
            list.push(provider);
        } else if let Err(at) = list.binary_search(&provider) {
            list.insert(at, provider);
        }
        number
    }

    fn new_number(&mut self, name: &K) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.lists.push(Vec::new());
            u32::try_from(self.lists.len() - 1).expect("fewer names than 2^32")
        });
        self.numbers.insert(name.clone(), number);
        number
    }

    /// Says that a provider no longer has it.
    pub(crate) fn remove(&mut self, name: &K, provider: u32) {
        let Some(&number) = self.numbers.get(name) else {
            return;
        };
        let list = &mut self.lists[number as usize];
        if let Ok(at) = list.binary_search(&provider) {
            list.remove(at);
        }
        if list.is_empty() {
            *list = Vec::new();
            self.numbers.remove(name);
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_again_when_nobody_has_the_name() {
        let mut postings = Postings::default();
        let first = postings.add(&"a", 3);
        assert_eq!(postings.add(&"a", 1), first);
        assert_eq!(postings.add(&"a", 3), first);
        assert_eq!(postings.list(first), [1, 3]);
        postings.remove(&"a", 1);
        postings.remove(&"a", 3);
        assert_eq!(postings.number(&"a"), None);
        assert_eq!(postings.add(&"b", 7), first);
        assert_eq!(postings.list(first), [7]);
    }
}
