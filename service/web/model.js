export class Model { constructor() {} values() { return {}; } open() {} }
