/* Example texts with their correct labels. `knownError`: the default model gets it wrong. A test checks each. */

export const EXAMPLES = [
  {
    name: "Mixed",
    text: "Beautiful pictures and great music, but the story is a mess and the ending is awful. What a waste.",
    label: "negative",
  },
  {
    name: "Praise",
    text: "A wonderful film. Great acting, a clever script, and I was never bored.",
    label: "positive",
  },
  {
    name: "Not cheap",
    text: "Not cheap, but worth every penny.",
    label: "positive",
  },
  {
    name: "Irony (known error)",
    text: "Great, the train is late again. I just love waiting in the rain.",
    label: "negative",
    knownError: true,
  },
];
