//! The standard names of resource classes and traits, which exist from the start and for ever.
//!
//! They are those of OpenStack's os-resource-classes 1.1.0 and os-traits 3.9.0; the two text files
//! beside this one hold one name per line.

use std::sync::LazyLock;

use crate::resource::{ResourceClass, Trait};

/// In the order in which OpenStack numbers them; `GET /resource_classes` lists them so.
static CLASSES: LazyLock<Vec<ResourceClass>> = LazyLock::new(|| {
    let names = include_str!("standard/resource_classes.txt").lines();
    names
        .map(|name| ResourceClass::new(name).expect("the file holds valid names"))
        .collect()
});

/// In alphabetical order.
static TRAITS: LazyLock<Vec<Trait>> = LazyLock::new(|| {
    let names = include_str!("standard/traits.txt").lines();
    names
        .map(|name| Trait::new(name).expect("the file holds valid names"))
        .collect()
});

/// Returns the standard resource classes in OpenStack's order, `VCPU` first.
#[must_use]
pub fn classes() -> &'static [ResourceClass] {
    &CLASSES
}

/// Returns the standard traits in alphabetical order.
#[must_use]
pub fn traits() -> &'static [Trait] {
    &TRAITS
}

impl ResourceClass {
    /// Returns whether the class is a standard one.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        CLASSES.contains(self)
    }
}

impl Trait {
    /// Returns whether the trait is a standard one.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        TRAITS.binary_search(self).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_names_are_all_there_and_none_is_custom() {
        assert_eq!((classes().len(), traits().len()), (21, 377));
        assert_eq!(classes()[0], ResourceClass::vcpu());
        assert!(traits().is_sorted());
        assert!(classes().iter().all(|c| c.is_standard() && !c.is_custom()));
        assert!(traits().iter().all(|t| t.is_standard() && !t.is_custom()));
        let custom = Trait::new("CUSTOM_FAST").unwrap();
        assert!(custom.is_custom() && !custom.is_standard());
        let neither = ResourceClass::new("FAST").unwrap();
        assert!(!neither.is_custom() && !neither.is_standard());
    }
}
