/* Sentences to begin with, each with the label that a person gives it. `wrong` marks those that the model gets wrong: they
   are called so. A test asks the served model about each. */

export const EXAMPLES = [
  {
    name: "Torn",
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
    name: "Irony, which it gets wrong",
    text: "Great, the train is late again. I just love waiting in the rain.",
    label: "negative",
    wrong: true,
  },
];
