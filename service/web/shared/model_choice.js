/* The selected text classification model, which both modes share: each has a <select> for it. */

import { ApiError, findCard } from "./api.js";
import { el } from "./element.js";

export class ModelChoice {
  /** `loadCards()` resolves to the model cards; the functions in `listeners` are called when another is selected. */
  constructor(loadCards, selects) {
    Object.assign(this, {
      loadCards,
      selects,
      listeners: [],
      models: null,
      model: null,
      notice: null,
      requested: null,
    });
    for (const select of selects) select.addEventListener("change", () => this.select(select.value));
  }

  /** Requests a model by name, or the selected one, for the next `load()`. */
  request(name) {
    this.requested = name ?? this.model?.name;
    this.models = null;
  }

  /** Resolves to the card of the selected model. */
  async load() {
    if (!this.models) this.setCards(await this.loadCards());
    if (!this.model) throw new ApiError(404, "this server has no text classification model");
    return this.model;
  }

  setCards(cards) {
    this.models = cards.filter(({ kind }) => kind === "text-classification");
    const requested = findCard(this.models, this.requested);
    const model = requested ?? this.models.find((card) => card.default) ?? this.models[0] ?? null;
    this.notice =
      this.requested && !requested && model
        ? `This server has no text classification model \u201c${this.requested}\u201d. Using ${model.name}.`
        : null;
    for (const select of this.selects) {
      const option = ({ name, labels }) => el("option", { value: name, title: labels?.join(", ") }, name);
      select.replaceChildren(...this.models.map(option));
      select.parentElement.hidden = this.models.length < 2;
    }
    this.show(model);
  }

  select(name) {
    if (name === this.model?.name) return;
    this.notice = null;
    this.show(this.models.find((card) => card.name === name) ?? this.model);
    for (const listener of this.listeners) listener(this.model);
  }

  show(model) {
    this.model = model;
    for (const select of this.selects) select.value = model?.name ?? "";
  }

  /** The value for links; null for the default model. */
  get linked() {
    return this.model?.default ? null : this.model?.name;
  }
}
